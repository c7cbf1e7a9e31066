import { takesFirst, type Candidate, type Fallback } from '../choice.js';
import type { Cluster } from '../cluster.js';
import { hash32 } from '../hash.js';
import { HotnessTree, spreadScale } from '../hotness.js';
import type { Instance } from '../instance.js';
import type { Move, RoutingPolicy } from '../policy.js';
import { rebalance } from '../rebalance.js';
import type { RoutedRequest } from '../request.js';
import { HashRing } from '../ring.js';
import { keyHash } from '../sub-key.js';

export interface DualMapOptions {
  readonly name: string;
  /** Of both rings' hashes; routers side by side use the same. */
  readonly seed: number;
  readonly pointsPerWeight: number;
  /** Leave the candidate with the greater reuse at this part of the SLO: 1 (paper) or 0.5 (released code). */
  readonly leaveAtSloShare: number;
  readonly fallback: Fallback;
  /** Which instances are rebalanced: the overloaded of a pair that is overloaded as a whole, any overloaded, none. */
  readonly rebalance: 'both-overloaded' | 'any-overloaded' | 'none';
  readonly rebalanceTargets: 'pair' | 'any';
  readonly key: KeyOptions;
}

/** How many blocks are the hash key: a fixed number, or as the hotness tree says. */
export type KeyOptions =
  | { readonly blocks: number }
  | {
      /** A share of requests (paper), or of the uncached tokens that they brought. */
      readonly share: 'requests' | 'uncached-tokens';
      /** Multiples of 1/n: 2 and 1 in the paper ... */
      readonly extendAbove: number;
      readonly shrinkBelow: number;
      /** ... or, of requests and whatever n, constants: 0.0612 and 0.02 in the released code. */
      readonly relative: 'instances' | 'all';
      /** Multiple of 1/n that a sub-key carries; left out, as in the paper: hot prefixes come to lie on every instance. */
      readonly subKeyShare?: number | undefined;
      /** Routers with a tree each, taking requests in turn; 1 but for evaluation. */
      readonly trees: number;
    };

/** DualMap as in the paper; thresholds of prefixes are shares of uncached tokens, as balance is. */
export const paperDualMap: DualMapOptions = {
  name: 'dualmap',
  seed: 0,
  pointsPerWeight: 1000,
  leaveAtSloShare: 1,
  fallback: 'less-loaded',
  rebalance: 'both-overloaded',
  rebalanceTargets: 'pair',
  key: { share: 'uncached-tokens', extendAbove: 2, shrinkBelow: 1, relative: 'instances', trees: 1 },
};

const minSamples = 20;
const maxTreeNodes = 1 << 17;

/** Two candidates by two independent hashes of the prompt's prefix; a choice between these two by state. */
export class DualMapPolicy implements RoutingPolicy {
  readonly name: string;
  readonly #options: DualMapOptions;
  readonly #rings: readonly [HashRing<Instance>, HashRing<Instance>];
  readonly #seeds: readonly [number, number];
  readonly #trees: HotnessTree[] = [];
  #turn = 0;
  #chosenHits = 0;
  readonly #first: Candidate = { hitBlocks: 0, queueS: 0, computeS: 0 };
  readonly #second: Candidate = { hitBlocks: 0, queueS: 0, computeS: 0 };

  constructor(options: DualMapOptions) {
    this.name = options.name;
    this.#options = options;
    this.#seeds = [hash32(options.seed, 1, 0x51ed270b), hash32(options.seed, 2, 0x2545f491)];
    this.#rings = [
      new HashRing(this.#seeds[0], options.pointsPerWeight),
      new HashRing(this.#seeds[1], options.pointsPerWeight),
    ];
  }

  /** Requests keyed by each number of blocks so far. */
  readonly keyBlocks = new Map<number, number>();

  instanceAdded(instance: Instance, cluster: Cluster): void {
    for (const ring of this.#rings) ring.add(instance);
    this.#rescaleTrees(cluster);
  }

  instanceRemoved(instance: Instance, cluster: Cluster): void {
    for (const ring of this.#rings) ring.remove(instance.name);
    this.#rescaleTrees(cluster);
  }

  route(request: RoutedRequest, cluster: Cluster): Instance {
    const { key } = this.#options;
    if ('blocks' in key) {
      this.#setPair(request, Math.min(key.blocks, request.blocks), 0);
      return this.#choose(request, cluster);
    }
    const tree = this.#trees[this.#turn]!;
    this.#turn = (this.#turn + 1) % this.#trees.length;
    const depth = tree.depthOf(request.keys, request.firstBlock, request.blocks);
    const { formerDepth } = tree;
    this.#setPair(request, depth, tree.subKeys);
    if (formerDepth > 0) tree.sawFormerPair(this.#preferFormerPair(request, cluster, depth, formerDepth));
    const chosen = this.#choose(request, cluster);
    const weight = key.share === 'requests' ? 1 : cluster.uncachedTokens(request, this.#chosenHits);
    tree.observe(request.keys, request.firstBlock, request.blocks, weight);
    this.keyBlocks.set(depth, (this.keyBlocks.get(depth) ?? 0) + 1);
    return chosen;
  }

  queued(request: RoutedRequest, cluster: Cluster, move: Move): void {
    const mode = this.#options.rebalance;
    if (mode === 'none' || cluster.queueS(request.instance) <= cluster.sloS) return;
    const { instance, primary, secondary } = request;
    const other = instance === primary ? secondary : primary;
    const otherOverloaded = other !== null && other !== instance && cluster.queueS(other) > cluster.sloS;
    if (mode === 'both-overloaded' && !otherOverloaded) return;
    const options = { targets: this.#options.rebalanceTargets };
    rebalance(instance, cluster, options, move);
    if (otherOverloaded) rebalance(other, cluster, options, move);
  }

  extendedKeys(): Uint32Array {
    return this.#trees[0]?.extendedKeys() ?? new Uint32Array();
  }

  adoptExtended(keys: Uint32Array): void {
    for (const tree of this.#trees) tree.adoptExtended(keys);
  }

  /** The two candidates of a prefix of `depth` blocks: a distinct second, where there is one. */
  #setPair(request: RoutedRequest, depth: number, subKeys: number): void {
    const [one, two] = this.#seeds;
    const first = this.#rings[0].pick(keyHash(request, depth, subKeys, one), undefined, isRoutable);
    const second = this.#rings[1].pick(keyHash(request, depth, subKeys, two), first, isRoutable);
    request.primary = first ?? null;
    request.secondary = second ?? first ?? null;
  }

  #choose(request: RoutedRequest, cluster: Cluster): Instance {
    const { primary, secondary } = request;
    if (primary === null || secondary === null) return cluster.routable[0]!;
    if (primary === secondary) {
      this.#chosenHits = cluster.hits(request, primary);
      return primary;
    }
    const { leaveAtSloShare, fallback } = this.#options;
    const rule = { leaveAboveS: leaveAtSloShare * cluster.sloS, sloS: cluster.sloS, fallback };
    fill(this.#first, request, primary, cluster);
    fill(this.#second, request, secondary, cluster);
    const chosen = takesFirst(this.#first, this.#second, rule) ? this.#first : this.#second;
    this.#chosenHits = chosen.hitBlocks;
    return chosen === this.#first ? primary : secondary;
  }

  /**
   * The pair of the former depth is taken where it holds more of the prompt than the new one, and more than the part
   * that all of the former pair's prompts share.
   */
  #preferFormerPair(request: RoutedRequest, cluster: Cluster, depth: number, formerDepth: number): boolean {
    const [primary, secondary] = [request.primary, request.secondary];
    const best = mostHits(request, cluster);
    this.#setPair(request, formerDepth, 0);
    const former = mostHits(request, cluster);
    if (former > best && former >= Math.max(depth, formerDepth)) return true;
    request.primary = primary;
    request.secondary = secondary;
    return false;
  }

  #rescaleTrees(cluster: Cluster): void {
    const { key } = this.#options;
    if ('blocks' in key) return;
    const instances = Math.max(1, cluster.instances.filter((instance) => !instance.draining).length);
    const unit = key.relative === 'instances' ? 1 / instances : 1;
    const scale = {
      window: Math.max(200, 50 * instances),
      extendAbove: key.extendAbove * unit,
      shrinkBelow: key.shrinkBelow * unit,
      spread: spreadScale(key.subKeyShare, instances),
    };
    for (const tree of this.#trees) tree.rescale(scale);
    while (this.#trees.length < key.trees) {
      this.#trees.push(new HotnessTree({ ...scale, minSamples, maxNodes: maxTreeNodes }));
    }
  }
}

function isRoutable(instance: Instance): boolean {
  return instance.routable;
}

function fill(candidate: Candidate, request: RoutedRequest, instance: Instance, cluster: Cluster): void {
  candidate.hitBlocks = cluster.hits(request, instance);
  candidate.queueS = cluster.queueS(instance);
  candidate.computeS = cluster.computeS(request, candidate.hitBlocks);
}

function mostHits(request: RoutedRequest, cluster: Cluster): number {
  const { primary, secondary } = request;
  return Math.max(
    primary === null ? 0 : cluster.hits(request, primary),
    secondary === null ? 0 : cluster.hits(request, secondary),
  );
}
