import { SeededRandom } from '../../scheduler/index.js';
import type { Cluster } from '../cluster.js';
import { hash32 } from '../hash.js';
import type { Instance } from '../instance.js';
import type { RoutingPolicy } from '../policy.js';
import type { RoutedRequest } from '../request.js';
import { HashRing } from '../ring.js';
import { HotnessTree, spreadScale, type HotnessScale } from '../hotness.js';
import { keyHash, subKeyHash } from '../sub-key.js';
import { BlockDirectory } from './directory.js';

export interface LateLaneOptions {
  readonly name: string;
  readonly seed: number;
  /** Candidates by hash of the prompt's first block that is not common. */
  readonly hashes: number;
  /** Candidates by chance, for a prompt that no candidate holds anything of. */
  readonly samples: number;
  /** Seconds of queue up to which an instance takes what is late anyway; 0: there is no lane. */
  readonly lateS: number;
  /** A prompt leaves its holder, for a candidate that meets the SLO, at the price of this part of it at most. */
  readonly leavesUpTo: number;
  /** Whether the policy keeps account of what it sent, beside what it is told. */
  readonly counts: boolean;
  /** Whether the instance that computed the prompt's deepest block is a candidate. */
  readonly directory: boolean;
  /** Multiple of 1/n that a sub-key of a hot prefix carries; undefined: hot prefixes come to lie on every instance. */
  readonly subKeyShare: number | undefined;
}

export const lateLane: LateLaneOptions = {
  name: 'late-lane',
  seed: 0,
  hashes: 2,
  samples: 4,
  lateS: 60,
  leavesUpTo: 0.1,
  counts: true,
  directory: true,
  subKeyShare: 0.25,
};

/** Prefixes count as hot from half of 1/n on, as with the constants of DualMap's released code at 8 instances. */
function scaleFor(instances: number, subKeyShare: number | undefined): HotnessScale {
  return {
    window: Math.max(200, 50 * instances),
    extendAbove: 0.5 / instances,
    shrinkBelow: 0.25 / instances,
    spread: spreadScale(subKeyShare, instances),
  };
}

/** What was sent to an instance and should not be worked off yet, as of a time. */
interface Backlog {
  queueS: number;
  atS: number;
}

interface Seen {
  readonly instance: Instance;
  /** Blocks held beyond the common ones. */
  readonly gain: number;
  readonly queueS: number;
  readonly computeS: number;
  readonly ttftS: number;
}

/** Places of the directory for each block that an instance caches. */
const directoryPlaces = 2;

/**
 * DualMap's idea taken further. A prompt's candidates are its hashed pair, the instance that computed its deepest known
 * block, and, for one that nobody holds, a few by chance. It goes to the candidate that holds most, the less loaded of
 * equals, as long as that meets the SLO; else to the one with the smallest TTFT that does. What misses the SLO on all of
 * them is late wherever it goes: it is put where the wait is longest already, the lane, and makes nobody else late. A
 * lane is full at `lateS` seconds, which bounds how late the late are.
 */
export class LateLanePolicy implements RoutingPolicy {
  readonly name: string;
  readonly #options: LateLaneOptions;
  readonly #tree: HotnessTree;
  readonly #random: SeededRandom;
  readonly #rings: readonly HashRing<Instance>[];
  readonly #seeds: readonly number[];
  readonly #byIndex = new Map<number, Instance>();
  readonly #backlogs = new Map<Instance, Backlog>();
  #directory = new BlockDirectory(2);
  #directoryBlocks = 0;
  #lane: Instance | undefined;

  constructor(options: LateLaneOptions) {
    this.name = options.name;
    this.#options = options;
    this.#tree = new HotnessTree({ ...this.#scale(1), minSamples: 20, maxNodes: 1 << 17 });
    this.#random = new SeededRandom(options.seed);
    this.#seeds = Array.from({ length: options.hashes }, (_, i) => hash32(options.seed, i + 1, 0x51ed270b));
    this.#rings = this.#seeds.map((seed) => new HashRing(seed));
  }

  instanceAdded(instance: Instance): void {
    for (const ring of this.#rings) ring.add(instance);
    this.#byIndex.set(instance.index, instance);
    this.#backlogs.set(instance, { queueS: 0, atS: 0 });
    this.#tree.rescale(this.#scale(this.#byIndex.size));
    // Grown by doubling; what it knew is learnt again with the next prompts.
    const blocks = [...this.#byIndex.values()].reduce((sum, { cache }) => sum + cache.capacityBlocks, 0);
    if (directoryPlaces * blocks <= this.#directoryBlocks || !this.#options.directory) return;
    this.#directoryBlocks = 2 * directoryPlaces * blocks;
    this.#directory = new BlockDirectory(this.#directoryBlocks);
  }

  instanceRemoved(instance: Instance): void {
    for (const ring of this.#rings) ring.remove(instance.name);
    this.#byIndex.delete(instance.index);
    this.#backlogs.delete(instance);
    this.#tree.rescale(this.#scale(Math.max(1, this.#byIndex.size)));
    if (this.#lane === instance) this.#lane = undefined;
  }

  extendedKeys(): Uint32Array {
    return this.#tree.extendedKeys();
  }

  adoptExtended(keys: Uint32Array): void {
    this.#tree.adoptExtended(keys);
  }

  prefilled(request: RoutedRequest): void {
    if (this.#options.directory) this.#directory.store(request);
  }

  route(request: RoutedRequest, cluster: Cluster): Instance {
    const { keys, firstBlock, blocks } = request;
    const depth = this.#tree.depthOf(keys, firstBlock, blocks);
    const { subKeys } = this.#tree;
    this.#tree.observe(keys, firstBlock, blocks, 1);
    const chosen = this.#choose(request, cluster, depth, subKeys);
    const backlog = this.#backlogs.get(chosen.instance)!;
    backlog.queueS = this.#backlogS(chosen.instance, cluster.nowS) + chosen.computeS;
    backlog.atS = cluster.nowS;
    return chosen.instance;
  }

  #choose(request: RoutedRequest, cluster: Cluster, depth: number, subKeys: number): Seen {
    const seen = this.#candidates(request, cluster, depth, subKeys);
    let best = seen[0]!;
    for (const each of seen) if (isBetter(each, best)) best = each;
    if (best.ttftS <= cluster.sloS) return best;
    let inTime: Seen | undefined;
    const priceS = this.#options.leavesUpTo * request.promptTokens * cluster.prefillSPerToken;
    for (const each of seen) {
      if (each.ttftS > cluster.sloS || each.computeS > best.computeS + priceS) continue;
      if (inTime === undefined || each.ttftS < inTime.ttftS) inTime = each;
    }
    if (inTime !== undefined) return inTime;
    if (best.gain > 0 || this.#options.lateS === 0) return best;
    return this.#late(request, seen, cluster) ?? best;
  }

  #scale(instances: number): HotnessScale {
    return scaleFor(instances, this.#options.subKeyShare);
  }

  #backlogS(instance: Instance, nowS: number): number {
    const { queueS, atS } = this.#backlogs.get(instance)!;
    return this.#options.counts ? Math.max(0, queueS - (nowS - atS)) : 0;
  }

  #candidates(request: RoutedRequest, cluster: Cluster, depth: number, subKeys: number): Seen[] {
    const seen: Seen[] = [];
    // What is hot is everywhere it is needed, or soon will be: only what is held beyond it binds a prompt.
    const common = Math.max(0, depth - 1);
    const add = (instance: Instance | undefined): void => {
      if (instance?.routable !== true || seen.some((each) => each.instance === instance)) return;
      seen.push(this.#see(request, instance, cluster, common));
    };
    if (this.#options.directory) add(this.#byIndex.get(this.#directory.holderOf(request, common)));
    for (const [i, ring] of this.#rings.entries()) {
      const hash = keyHash(request, Math.min(depth, request.blocks), subKeys, this.#seeds[i]!);
      const instance = ring.pick(hash, request.primary ?? undefined, isRoutable);
      if (i === 0) request.primary = instance ?? null;
      else request.secondary ??= instance ?? null;
      add(instance);
    }
    const isCold = seen.every(({ gain }) => gain === 0);
    for (let i = 0; (isCold && i < this.#options.samples) || seen.length === 0; i++) {
      add(this.#sample(request, cluster, depth, subKeys));
    }
    return seen;
  }

  /** By chance: of the instances that a hot prefix is spread over, or of all. */
  #sample(request: RoutedRequest, cluster: Cluster, depth: number, subKeys: number): Instance | undefined {
    const { routable } = cluster;
    if (subKeys < 2) return routable[this.#random.below(routable.length)];
    const ring = this.#random.below(this.#rings.length);
    const hash = subKeyHash(request, depth, this.#random.below(subKeys), this.#seeds[ring]!);
    return this.#rings[ring]!.pick(hash, undefined, isRoutable);
  }

  #see(request: RoutedRequest, instance: Instance, cluster: Cluster, common: number): Seen {
    const hits = cluster.hits(request, instance);
    // The larger of what is told, which may be old, and of what was sent, which may not be all.
    const queueS = Math.max(cluster.queueS(instance), this.#backlogS(instance, cluster.nowS));
    const computeS = cluster.computeS(request, hits);
    return { instance, gain: Math.max(0, hits - common), queueS, computeS, ttftS: queueS + computeS };
  }

  /** The lane as long as it has room; else the candidate that waits longest and has. */
  #late(request: RoutedRequest, seen: readonly Seen[], cluster: Cluster): Seen | undefined {
    const { lateS } = this.#options;
    if (this.#lane?.routable === true) {
      const lane = this.#see(request, this.#lane, cluster, 0);
      if (lane.queueS > cluster.sloS && lane.queueS < lateS) return lane;
    }
    let longest: Seen | undefined;
    for (const each of seen) {
      if (each.queueS < lateS && (longest === undefined || each.queueS > longest.queueS)) longest = each;
    }
    this.#lane = longest?.instance;
    return longest;
  }
}

function isRoutable(instance: Instance): boolean {
  return instance.routable;
}

/** More held, or as much and less to wait for. */
function isBetter(a: Seen, b: Seen): boolean {
  return a.gain > b.gain || (a.gain === b.gain && a.ttftS < b.ttftS);
}
