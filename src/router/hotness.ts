import { DualPathError } from '../errors/index.js';
import { hash32 } from './hash.js';

const none = 0xffffffff;

/** The longest key. */
export const keyBlocksMax = 64;

/** What follows the number of instances. */
export interface HotnessScale {
  /** Requests of the window. */
  readonly window: number;
  /** A prefix with more than this share of the window is extended by a block ... */
  readonly extendAbove: number;
  /** ... and one with less is a key by itself again. */
  readonly shrinkBelow: number;
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
 * A prompt is counted at every prefix that was seen before and at one more, so the tree grows by a block a request and
 * hot prefixes are counted before they are keys. Counts leave with the requests that made them, and a prefix without
 * any request in the window is forgotten.
 */
export class HotnessTree {
  readonly #options: HotnessOptions;
  #scale: HotnessScale;
  readonly #mask: number;
  readonly #heads: Uint32Array;
  readonly #low: Uint32Array;
  readonly #high: Uint32Array;
  readonly #chain: Uint32Array;
  readonly #parent: Uint32Array;
  readonly #samples: Uint32Array;
  readonly #weight: Float64Array;
  readonly #extended: Uint8Array;
  /** Blocks of the key before the last change, and how many looks at that pair may still fail before it is given up. */
  readonly #keyedBefore: Uint32Array;
  readonly #grace: Uint32Array;
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
  #changes = 0;
  #uncounted = 0;

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
    this.#low = new Uint32Array(maxNodes);
    this.#high = new Uint32Array(maxNodes);
    this.#chain = new Uint32Array(maxNodes);
    this.#parent = new Uint32Array(maxNodes);
    this.#samples = new Uint32Array(maxNodes);
    this.#weight = new Float64Array(maxNodes);
    this.#extended = new Uint8Array(maxNodes);
    this.#keyedBefore = new Uint32Array(maxNodes);
    this.#grace = new Uint32Array(maxNodes);
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
      node = this.#find(keys[2 * (first + depth - 1)]!, keys[2 * (first + depth - 1) + 1]!);
      if (depth === count || node === none || !this.#isExtended(node, depth)) break;
      above = node;
    }
    // What changed last is the prefix itself, if it shrank, or the one above it.
    const changed = node !== none && this.#grace[node]! > 0 ? node : above;
    const known = changed !== none && this.#grace[changed]! > 0 && this.#keyedBefore[changed]! <= count;
    this.#former = known ? changed : none;
    this.#formerDepth = known ? this.#keyedBefore[changed]! : 0;
    return depth;
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
    this.#grace[this.#former] = hit ? this.#scale.window : this.#grace[this.#former]! - 1;
  }

  /** Counts a request in the window; extends what has become hot by it. */
  observe(keys: Uint32Array, first: number, count: number, weight: number): void {
    if (this.#filled === this.#scale.window) this.#expire();
    this.#total += weight;
    const end = first + Math.min(count, keyBlocksMax);
    let parent = none;
    let keyed = 0;
    for (let block = first; block < end; block++) {
      const node = this.#findOrInsert(keys[2 * block]!, keys[2 * block + 1]!, parent);
      if (node === none) {
        this.#uncounted++;
        break;
      }
      this.#weight[node]! += weight;
      const depth = block - first + 1;
      // A key grows through all prefixes that are hot by now, and knows where it stood before.
      if (keyed === 0 && this.#extended[node] === 0) keyed = depth;
      if (keyed > 0 && keyed !== none && !this.#extend(node, keyed)) keyed = none;
      parent = node;
      if (this.#samples[node]!++ === 0) break;
    }
    const next = (this.#oldest + this.#filled) % this.#scale.window;
    this.#leaves[next] = parent;
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
      const parent = this.#parent[node]!;
      this.#weight[node]! -= weight;
      if (--this.#samples[node]! === 0) this.#remove(node);
      node = parent;
    }
  }

  #extend(node: number, keyed: number): boolean {
    if (this.#extended[node] === 1) return true;
    if (this.#samples[node]! + 1 < this.#options.minSamples) return false;
    if (this.#weight[node]! <= this.#scale.extendAbove * this.#total) return false;
    this.#extended[node] = 1;
    this.#keyedBefore[node] = keyed;
    this.#grace[node] = this.#scale.window;
    this.#changes++;
    return true;
  }

  /** Whether the prefix is extended; here it shrinks, when a prompt comes by and its share has fallen. */
  #isExtended(node: number, depth: number): boolean {
    if (this.#extended[node] === 0) return false;
    if (this.#weight[node]! >= this.#scale.shrinkBelow * this.#total) return true;
    this.#extended[node] = 0;
    this.#keyedBefore[node] = depth + 1;
    this.#grace[node] = this.#scale.window;
    this.#changes++;
    return false;
  }

  #bucket(low: number, high: number): number {
    return hash32(low, high, 0x7feb352d) & this.#mask;
  }

  #find(low: number, high: number): number {
    let node = this.#heads[this.#bucket(low, high)]!;
    while (node !== none && (this.#low[node] !== low || this.#high[node] !== high)) node = this.#chain[node]!;
    return node;
  }

  #findOrInsert(low: number, high: number, parent: number): number {
    const found = this.#find(low, high);
    // A key that came behind other blocks before is no chained key, and would be counted at prefixes it does not have.
    if (found !== none && this.#parent[found] !== parent) return none;
    if (found !== none || this.size === this.#options.maxNodes) return found;
    const node = this.#freeCount > 0 ? this.#free[--this.#freeCount]! : this.#used++;
    const bucket = this.#bucket(low, high);
    this.#low[node] = low;
    this.#high[node] = high;
    this.#parent[node] = parent;
    this.#samples[node] = 0;
    this.#weight[node] = 0;
    this.#extended[node] = 0;
    this.#grace[node] = 0;
    this.#chain[node] = this.#heads[bucket]!;
    this.#heads[bucket] = node;
    return node;
  }

  #remove(node: number): void {
    const bucket = this.#bucket(this.#low[node]!, this.#high[node]!);
    if (this.#heads[bucket] === node) this.#heads[bucket] = this.#chain[node]!;
    else {
      let at = this.#heads[bucket]!;
      while (this.#chain[at] !== node) at = this.#chain[at]!;
      this.#chain[at] = this.#chain[node]!;
    }
    if (this.#extended[node] === 1) this.#changes++;
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
