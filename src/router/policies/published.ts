import type { Cluster } from '../cluster.js';
import type { Instance } from '../instance.js';
import type { RoutingPolicy } from '../policy.js';
import { SeededRandom } from '../../scheduler/index.js';
import type { RoutedRequest } from '../request.js';
import { leastBy } from './simple.js';

/**
 * Mooncake (FAST 2025, algorithm 1): the smallest T_q + T_c of all. Without its transfer of remote prefixes, which the
 * instances here cannot do, and without its rejections: whoever misses the SLO is served all the same, and counts as
 * missed.
 */
export class MinTtftPolicy implements RoutingPolicy {
  readonly name = 'min-ttft';
  readonly #random: SeededRandom;

  constructor(seed: number) {
    this.#random = new SeededRandom(seed);
  }

  route(request: RoutedRequest, cluster: Cluster): Instance {
    return leastBy(
      cluster.routable,
      this.#random,
      (instance) => cluster.queueS(instance) + cluster.computeS(request, cluster.hits(request, instance)),
    );
  }
}

export interface DynamoOptions {
  /** Weight of prefill blocks against decode blocks. */
  readonly overlapScoreWeight: number;
}

/**
 * NVIDIA Dynamo's KV router at temperature 0: the least of (weight x prefill blocks that would be pending) + (blocks
 * of all requests that it would have); ties by chance.
 */
export class DynamoPolicy implements RoutingPolicy {
  readonly name = 'dynamo';
  readonly #random: SeededRandom;
  readonly #options: DynamoOptions;

  constructor(seed: number, options: DynamoOptions = { overlapScoreWeight: 1 }) {
    this.#random = new SeededRandom(seed);
    this.#options = options;
  }

  route(request: RoutedRequest, cluster: Cluster): Instance {
    const blockS = cluster.blockTokens * cluster.prefillSPerToken;
    return leastBy(cluster.routable, this.#random, (instance) => {
      const prefillS = cluster.queueS(instance) + cluster.computeS(request, cluster.hits(request, instance));
      const activeBlocks = instance.activeBlocks + request.blocks;
      return (this.#options.overlapScoreWeight * prefillS) / blockS + activeBlocks;
    });
  }
}

export interface CacheAwareOptions {
  readonly cacheThreshold: number;
  readonly balanceAbsThreshold: number;
  readonly balanceRelThreshold: number;
}

/**
 * SGLang router's cache_aware: where requests are unbalanced (most - fewest > the absolute and most > the relative
 * threshold) the one with fewest; else the best match above `cacheThreshold` of the prompt; else the smallest tree.
 */
export class CacheAwarePolicy implements RoutingPolicy {
  readonly name = 'sglang-cache-aware';
  readonly #random: SeededRandom;
  readonly #options: CacheAwareOptions;

  constructor(
    seed: number,
    options: CacheAwareOptions = { cacheThreshold: 0.3, balanceAbsThreshold: 64, balanceRelThreshold: 1.5 },
  ) {
    this.#random = new SeededRandom(seed);
    this.#options = options;
  }

  route(request: RoutedRequest, cluster: Cluster): Instance {
    const { routable } = cluster;
    let [fewest, most] = [Infinity, 0];
    for (const instance of routable) {
      fewest = Math.min(fewest, instance.requests);
      most = Math.max(most, instance.requests);
    }
    const { cacheThreshold, balanceAbsThreshold, balanceRelThreshold } = this.#options;
    if (most - fewest > balanceAbsThreshold && most > balanceRelThreshold * fewest) {
      return leastBy(routable, this.#random, (instance) => instance.requests);
    }
    const best = leastBy(routable, this.#random, (instance) => -cluster.hits(request, instance));
    const matched = (cluster.hits(request, best) * cluster.blockTokens) / request.promptTokens;
    if (matched > cacheThreshold) return best;
    return leastBy(routable, this.#random, (instance) => instance.cache.size);
  }
}
