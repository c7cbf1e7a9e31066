import { DualPathError } from '../errors/index.js';
import { hash32 } from './hash.js';

const none = 0xffffffff;

/** Words of a node. */
const stride = 8;
const low = 0;
const high = 1;
/** The next node of the bucket. */
const chain = 2;
/** The prefix of a block less. */
const parent = 3;
/** Requests of the window that have the prefix. */
const samples = 4;
/** Where the prefix is extended 1 and the log2 of the number of sub-keys of its extension, else 0. */
const extended = 5;
/** Blocks of the key before the last change, and how many looks at that pair may still fail before it is given up. */
const keyedBefore = 6;
const grace = 7;

/** Requests that must have had a prefix before the next one is counted a block deeper, too. */
export const growFrom = 4;

/** The longest key. */
export const keyBlocksMax = 64;

/** Sub-keys of one prefix: 2 to this power at most. */
const subKeysMaxLog2 = 16;

/** Extended prefixes that are told to other trees, and taken over from them. */
export const exchangedKeysMax = 4096;

/** What follows the number of instances. */
export interface HotnessScale {
  /** Requests of the window. */
  readonly window: number;
  /** A prefix with more than this share of the window is extended by a block ... */
  readonly extendAbove: number;
  /** ... and one with less is a key by itself again. */
  readonly shrinkBelow: number;
  /** Left out: the keys that extend a prefix are as many as the blocks that follow it. */
  readonly spread?: SpreadScale | undefined;
}

/** A prefix lies on as many instances as bear it, not on all of them. */
export interface SpreadScale {
  /** What one sub-key of a prefix is to carry. */
  readonly subKeyShare: number;
  /** A prefix that needs this many sub-keys lies everywhere anyway, and is not limited. */
  readonly subKeysMax: number;
}

/** For pairs of `instances`, a sub-key carries `subKeyShare` of what an instance should. */
export function spreadScale(subKeyShare: number | undefined, instances: number): SpreadScale | undefined {
  if (subKeyShare === undefined) return undefined;
  return { subKeyShare: subKeyShare / instances, subKeysMax: instances / 2 };
}

export interface HotnessOptions extends HotnessScale {
  /** Requests of the window that must have a prefix before its share means anything. */
  readonly minSamples: number;
  /** Prefixes that are counted at once; later ones are not counted until there is room. */
  readonly maxNodes: number;
}

/**
 * The prefix hotness tree (DualMap, section on hot prefixes): how many blocks of a prompt are its hash key.
 *
 * Every key begins at one block. A prefix whose share of a sliding window is above `extendAbove` is *extended*: prompts
 * that have it are keyed one block deeper. It shrinks when the share of that same prefix falls below `shrinkBelow`, so
 * what is tested is the parent of the keys in use, which goes on counting all that pass through it; the extended keys
 * are smaller and would shrink at once.
 *
 * A prompt is counted as deep as its prefixes were seen a few times before, and a block deeper: hot prefixes are counted
 * before they are keys, and the many that are seen once or twice cost next to nothing. Counts leave with the requests that made them, and a prefix without
 * any request in the window is forgotten.
 */
export class HotnessTree {
  readonly #options: HotnessOptions;
  #scale: HotnessScale;
  readonly #mask: number;
  readonly #heads: Uint32Array;
  /** Nodes of `stride` words each, beside each other because a walk waits for memory. */
  readonly #nodes: Uint32Array;
  readonly #weight: Float64Array;
  /** Nodes given back; those from `used` on were never given. */
  readonly #free: Uint32Array;
  #freeCount = 0;
  #used = 0;
  /** The window: the deepest counted prefix of each request, and its weight. */
  #leaves: Uint32Array;
  #weights: Float64Array;
  #oldest = 0;
  #filled = 0;
  #total = 0;
  #former = none;
  #formerDepth = 0;
  #subKeys = 0;
  #changes = 0;
  #uncounted = 0;
  /** Extended by other trees: the high word by the low one. Two that share a low word are one too many to matter. */
  readonly #adopted = new Map<number, number>();

  /** @throws INVALID_ARGUMENT for a window or limit that is not a whole number from 1 */
  constructor(options: HotnessOptions) {
    checkCount('window', options.window);
    checkCount('maxNodes', options.maxNodes);
    this.#options = options;
    this.#scale = options;
    const { maxNodes, window } = options;
    const buckets = 2 ** Math.ceil(Math.log2(Math.max(2, maxNodes)));
    this.#mask = buckets - 1;
    this.#heads = new Uint32Array(buckets).fill(none);
    this.#nodes = new Uint32Array(stride * maxNodes);
    this.#weight = new Float64Array(maxNodes);
    this.#free = new Uint32Array(maxNodes);
    this.#leaves = new Uint32Array(window);
    this.#weights = new Float64Array(window);
  }

  /** For another number of instances: the newest requests of the window stay, and all prefixes that they have. */
  rescale(scale: HotnessScale): void {
    checkCount('window', scale.window);
    while (this.#filled > scale.window) this.#expire();
    const leaves = new Uint32Array(scale.window);
    const weights = new Float64Array(scale.window);
    for (let i = 0; i < this.#filled; i++) {
      const from = (this.#oldest + i) % this.#scale.window;
      leaves[i] = this.#leaves[from]!;
      weights[i] = this.#weights[from]!;
    }
    this.#leaves = leaves;
    this.#weights = weights;
    this.#oldest = 0;
    this.#scale = scale;
  }

  /** Prefixes counted now. */
  get size(): number {
    return this.#used - this.#freeCount;
  }

  /** Depth changes so far, and requests that could not be counted to their full depth for want of room. */
  get statistics(): { readonly changes: number; readonly uncounted: number } {
    return { changes: this.#changes, uncounted: this.#uncounted };
  }

  /** Blocks of the hash key of a prompt of `count` blocks: at least 1, if it has one. */
  depthOf(keys: Uint32Array, first: number, count: number): number {
    let depth = Math.min(1, count);
    let above = none;
    let node = none;
    for (; depth > 0; depth++) {
      const [keyLow, keyHigh] = [keys[2 * (first + depth - 1)]!, keys[2 * (first + depth - 1) + 1]!];
      node = this.#find(keyLow, keyHigh);
      if (depth === count) break;
      // What others extend counts from the first prompt on that has it here.
      if (node === none ? !this.#isAdopted(keyLow, keyHigh) : !this.#isExtended(node, depth)) break;
      above = node;
    }
    this.#subKeys = above === none ? 0 : this.#subKeysOf(above);
    // What changed last is the prefix itself, if it shrank, or the one above it.
    const changed = node !== none && this.#get(node, grace) > 0 ? node : above;
    const known =
      changed !== none && this.#get(changed, grace) > 0 && this.#get(changed, keyedBefore) <= count;
    this.#former = known ? changed : none;
    this.#formerDepth = known ? this.#get(changed, keyedBefore) : 0;
    return depth;
  }

  /**
   * After `depthOf`: over how many sub-keys the prefix above the key's last block is to be spread, a power of two; 0: as
   * many as there are blocks that follow it. Without a limit a hot prefix comes to lie on every instance, and a large
   * cluster computes it once on each.
   */
  get subKeys(): number {
    return this.#subKeys;
  }

  /**
   * After `depthOf`: the depth at which this prompt was keyed before the last change; 0 where none counts any more.
   * Say with `sawFormerPair` what a look at that depth's pair found: it stays eligible while it has hits.
   */
  get formerDepth(): number {
    return this.#formerDepth;
  }

  /** After as many looks in a row without a hit as the window has requests, the former pair is given up. */
  sawFormerPair(hit: boolean): void {
    if (this.#former === none) return;
    const left = this.#get(this.#former, grace);
    this.#set(this.#former, grace, hit ? this.#scale.window : left - 1);
  }

  /** Counts a request in the window; extends what has become hot by it. */
  observe(keys: Uint32Array, first: number, count: number, weight: number): void {
    if (this.#filled === this.#scale.window) this.#expire();
    this.#total += weight;
    const end = first + Math.min(count, keyBlocksMax);
    let above = none;
    let keyed = 0;
    for (let block = first; block < end; block++) {
      const node = this.#findOrInsert(keys[2 * block]!, keys[2 * block + 1]!, above);
      if (node === none) {
        this.#uncounted++;
        break;
      }
      this.#weight[node]! += weight;
      const depth = block - first + 1;
      // A key grows through all prefixes that are hot by now, and knows where it stood before.
      if (keyed === 0 && this.#get(node, extended) === 0) keyed = depth;
      if (keyed > 0 && keyed !== none && !this.#extend(node, keyed)) keyed = none;
      above = node;
      const before = this.#get(node, samples);
      this.#set(node, samples, before + 1);
      if (before < growFrom) break;
    }
    const next = (this.#oldest + this.#filled) % this.#scale.window;
    this.#leaves[next] = above;
    this.#weights[next] = weight;
    this.#filled++;
  }

  #expire(): void {
    const weight = this.#weights[this.#oldest]!;
    const leaf = this.#leaves[this.#oldest]!;
    this.#oldest = (this.#oldest + 1) % this.#scale.window;
    this.#total -= weight;
    this.#filled--;
    for (let node = leaf; node !== none;) {
      const next = this.#get(node, parent);
      this.#weight[node]! -= weight;
      const left = this.#get(node, samples) - 1;
      this.#set(node, samples, left);
      if (left === 0) this.#remove(node);
      node = next;
    }
  }

  #extend(node: number, keyed: number): boolean {
    if (this.#get(node, extended) > 0) return true;
    if (this.#get(node, samples) + 1 < this.#options.minSamples) return false;
    if (this.#weight[node]! <= this.#scale.extendAbove * this.#total) return false;
    this.#set(node, extended, 1);
    this.#set(node, keyedBefore, keyed);
    this.#set(node, grace, this.#scale.window);
    this.#changes++;
    return true;
  }

  /** Extended prefixes, two u32 each, `exchangedKeysMax` at most: not those that were only taken over. */
  extendedKeys(): Uint32Array {
    const keys: number[] = [];
    for (let node = 0; node < this.#used && keys.length < 2 * exchangedKeysMax; node++) {
      if (this.#get(node, samples) > 0 && this.#get(node, extended) > 0) {
        keys.push(this.#get(node, low), this.#get(node, high));
      }
    }
    return Uint32Array.from(keys);
  }

  /**
   * Trees that see different requests reach different depths, and prompts then meet in none of the caches. What another
   * tree extends counts as extended here until it is not among `keys` any more.
   */
  adoptExtended(keys: Uint32Array): void {
    this.#adopted.clear();
    const end = Math.min(keys.length, 2 * exchangedKeysMax);
    for (let i = 0; i + 1 < end; i += 2) this.#adopted.set(keys[i]!, keys[i + 1]!);
  }

  /** Whether the prefix is extended; here it shrinks, when a prompt comes by and its share has fallen. */
  #isExtended(node: number, depth: number): boolean {
    const adopted = this.#isAdopted(this.#get(node, low), this.#get(node, high));
    if (this.#get(node, extended) === 0) return adopted;
    if (this.#weight[node]! >= this.#scale.shrinkBelow * this.#total) return true;
    this.#set(node, extended, 0);
    // Also while others extend it: two trees that wait for each other would never shrink.
    if (adopted) return true;
    this.#set(node, keyedBefore, depth + 1);
    this.#set(node, grace, this.#scale.window);
    this.#changes++;
    return false;
  }

  #isAdopted(keyLow: number, keyHigh: number): boolean {
    return this.#adopted.size > 0 && this.#adopted.get(keyLow) === keyHigh;
  }

  /** Doubles at once, and halves where a quarter would do: a share at the edge of a power of two changes nothing. */
  #subKeysOf(node: number): number {
    const { spread } = this.#scale;
    if (spread === undefined) return 0;
    const wanted = this.#weight[node]! / (spread.subKeyShare * this.#total);
    const log2 = Math.min(subKeysMaxLog2, Math.max(0, Math.ceil(Math.log2(wanted))));
    // 0 where another tree extends it: nothing is kept here then.
    const before = this.#get(node, extended);
    let now = before - 1;
    if (log2 > now || log2 < now - 1) now = log2;
    if (before > 0) this.#set(node, extended, now + 1);
    return 2 ** now < spread.subKeysMax ? 2 ** now : 0;
  }

  #get(node: number, field: number): number {
    return this.#nodes[stride * node + field]!;
  }

  #set(node: number, field: number, value: number): void {
    this.#nodes[stride * node + field] = value;
  }

  #bucket(keyLow: number, keyHigh: number): number {
    return hash32(keyLow, keyHigh, 0x7feb352d) & this.#mask;
  }

  #find(keyLow: number, keyHigh: number): number {
    let node = this.#heads[this.#bucket(keyLow, keyHigh)]!;
    while (node !== none && (this.#get(node, low) !== keyLow || this.#get(node, high) !== keyHigh))
      node = this.#get(node, chain);
    return node;
  }

  #findOrInsert(keyLow: number, keyHigh: number, above: number): number {
    const found = this.#find(keyLow, keyHigh);
    // A key that came behind other blocks before is no chained key, and would be counted at prefixes it does not have.
    if (found !== none && this.#get(found, parent) !== above) return none;
    if (found !== none || this.size === this.#options.maxNodes) return found;
    const node = this.#freeCount > 0 ? this.#free[--this.#freeCount]! : this.#used++;
    const bucket = this.#bucket(keyLow, keyHigh);
    this.#set(node, low, keyLow);
    this.#set(node, high, keyHigh);
    this.#set(node, parent, above);
    this.#set(node, samples, 0);
    this.#weight[node] = 0;
    this.#set(node, extended, 0);
    this.#set(node, grace, 0);
    this.#set(node, chain, this.#heads[bucket]!);
    this.#heads[bucket] = node;
    return node;
  }

  #remove(node: number): void {
    const bucket = this.#bucket(this.#get(node, low), this.#get(node, high));
    if (this.#heads[bucket] === node) this.#heads[bucket] = this.#get(node, chain);
    else {
      let at = this.#heads[bucket]!;
      while (this.#get(at, chain) !== node) at = this.#get(at, chain);
      this.#set(at, chain, this.#get(node, chain));
    }
    if (this.#get(node, extended) > 0) this.#changes++;
    this.#free[this.#freeCount++] = node;
  }
}

function checkCount(name: string, value: number): void {
  if (Number.isInteger(value) && value >= 1 && value <= 1 << 22) return;
  throw new DualPathError(
    'INVALID_ARGUMENT',
    `${name} of the hotness tree is ${value}: give a whole number from 1 to ${1 << 22}`,
    { [name]: String(value) },
  );
}
