import type { Cluster } from '../cluster.js';
import { hash32 } from '../hash.js';
import type { Instance } from '../instance.js';
import type { RoutingPolicy } from '../policy.js';
import { SeededRandom } from '../../scheduler/index.js';
import type { RoutedRequest } from '../request.js';
import { HashRing } from '../ring.js';
import { CommonPrefix } from './common-prefix.js';
import { leastBy } from './simple.js';

/** What the policies by affinity share: a ring, and the key of a prompt, its first block that is not common. */
abstract class KeyedPolicy implements RoutingPolicy {
  abstract readonly name: string;
  readonly #seed: number;
  readonly #common = new CommonPrefix();
  protected readonly ring: HashRing<Instance>;
  protected readonly random: SeededRandom;

  constructor(seed: number) {
    this.#seed = hash32(seed, 3, 0x51ed270b);
    this.ring = new HashRing(this.#seed);
    this.random = new SeededRandom(seed);
  }

  abstract route(request: RoutedRequest, cluster: Cluster): Instance;

  instanceAdded(instance: Instance): void {
    this.ring.add(instance);
  }

  instanceRemoved(instance: Instance): void {
    this.ring.remove(instance.name);
  }

  /** Leading blocks that do not count. */
  protected commonBlocks(request: RoutedRequest): number {
    return this.#common.blocksOf(request);
  }

  protected keyHash(request: RoutedRequest, commonBlocks: number): number {
    const block = Math.min(commonBlocks, request.blocks - 1);
    if (block < 0) return hash32(request.id, 0, this.#seed);
    const at = 2 * (request.firstBlock + block);
    return hash32(request.keys[at]!, request.keys[at + 1]!, this.#seed);
  }

  protected byRing(request: RoutedRequest, cluster: Cluster, commonBlocks: number): Instance {
    const hash = this.keyHash(request, commonBlocks);
    return this.ring.pick(hash, undefined, (instance) => instance.routable) ?? cluster.routable[0]!;
  }
}

/** Consistent hashing of the prefix to one instance, whatever its load. */
export class HashAffinityPolicy extends KeyedPolicy {
  readonly name = 'hash-affinity';

  route(request: RoutedRequest, cluster: Cluster): Instance {
    return this.byRing(request, cluster, this.commonBlocks(request));
  }
}

/** The instance that holds most of the prompt, whatever its load; by hash where none holds more than what is common. */
export class CacheAffinityPolicy extends KeyedPolicy {
  readonly name = 'cache-affinity';

  route(request: RoutedRequest, cluster: Cluster): Instance {
    const common = this.commonBlocks(request);
    let best: Instance | undefined;
    let most = common;
    for (const instance of cluster.routable) {
      const hits = cluster.hits(request, instance);
      if (hits <= most) continue;
      best = instance;
      most = hits;
    }
    return best ?? this.byRing(request, cluster, common);
  }
}

/** The instance that holds most of the prompt beyond what is common; the least loaded one of equals. */
export class MaxHitPolicy extends KeyedPolicy {
  readonly name = 'max-hit';

  route(request: RoutedRequest, cluster: Cluster): Instance {
    const common = this.commonBlocks(request);
    let most = 0;
    for (const instance of cluster.routable)
      most = Math.max(most, this.#gain(request, instance, cluster, common));
    return leastBy(cluster.routable, this.random, (instance) =>
      this.#gain(request, instance, cluster, common) < most ? Infinity : cluster.queueS(instance),
    );
  }

  #gain(request: RoutedRequest, instance: Instance, cluster: Cluster, common: number): number {
    return Math.max(0, cluster.hits(request, instance) - common);
  }
}

/**
 * Consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam, SODA 2018): the first instance clockwise with
 * fewer requests than `balance` times the mean, this one counted.
 */
export class BoundedLoadPolicy extends KeyedPolicy {
  readonly name = 'bounded-load';
  readonly #balance: number;

  constructor(seed: number, balance = 1.25) {
    super(seed);
    this.#balance = balance;
  }

  route(request: RoutedRequest, cluster: Cluster): Instance {
    const common = this.commonBlocks(request);
    let requests = 1;
    for (const instance of cluster.routable) requests += instance.requests;
    const most = Math.ceil((this.#balance * requests) / cluster.routable.length);
    const hash = this.keyHash(request, common);
    const usable = (instance: Instance): boolean => instance.routable && instance.requests < most;
    return this.ring.pick(hash, undefined, usable) ?? this.byRing(request, cluster, common);
  }
}
