import { DualPathError } from '../errors/index.js';
import { routerLimits } from './limits.js';

/** Stands for "no entry" in the links. */
const none = 0xffffffff;

/**
 * Which blocks an instance holds: a set of 64-bit block keys (two u32, `keys[2 i]` and `keys[2 i + 1]`), bounded like
 * the instance's own cache, the least recently used block out first. A key stands for its block and all before it.
 *
 * A request's blocks are touched from the last to the first. So a block is never more recent than the one before it,
 * the end of a prefix is evicted before its beginning, and what is held of any prompt is a leading part of it: that
 * part is found by a binary search. 24 bytes a block and 4 to 8 for the table; nothing is allocated after the start.
 */
export class PrefixIndex {
  readonly capacityBlocks: number;
  readonly #mask: number;
  readonly #heads: Uint32Array;
  readonly #low: Uint32Array;
  readonly #high: Uint32Array;
  /** Entries of one bucket. */
  readonly #chain: Uint32Array;
  /** By use: towards the older and the newer. */
  readonly #older: Uint32Array;
  readonly #newer: Uint32Array;
  #oldest = none;
  #newest = none;
  #size = 0;

  /** @throws INVALID_ARGUMENT for a capacity out of bounds */
  constructor(capacityBlocks: number) {
    if (
      !Number.isInteger(capacityBlocks) ||
      capacityBlocks < 1 ||
      capacityBlocks > routerLimits.blocksPerInstance
    ) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `an index of ${capacityBlocks} blocks: give a whole number from 1 to ${routerLimits.blocksPerInstance}, ` +
          'the tokens that the instance caches over the tokens of a block',
        { capacity_blocks: String(capacityBlocks) },
      );
    }
    this.capacityBlocks = capacityBlocks;
    const buckets = 2 ** Math.ceil(Math.log2(Math.max(2, capacityBlocks)));
    this.#mask = buckets - 1;
    this.#heads = new Uint32Array(buckets).fill(none);
    this.#low = new Uint32Array(capacityBlocks);
    this.#high = new Uint32Array(capacityBlocks);
    this.#chain = new Uint32Array(capacityBlocks);
    this.#older = new Uint32Array(capacityBlocks);
    this.#newer = new Uint32Array(capacityBlocks);
  }

  /** Blocks held. */
  get size(): number {
    return this.#size;
  }

  /** Bytes of the tables, whatever is held. */
  get bytes(): number {
    return 4 * (this.#heads.length + 5 * this.capacityBlocks);
  }

  /** How many of the blocks [first, first + count) are held: a leading part. */
  match(keys: Uint32Array, first: number, count: number): number {
    let low = 0;
    let high = count;
    // From the front by doubling steps, since most prompts hit little or nothing.
    for (let step = 1; low < high; step *= 2) {
      const probe = Math.min(low + step, high);
      if (!this.has(keys, first + probe - 1)) {
        high = probe - 1;
        break;
      }
      low = probe;
    }
    while (low < high) {
      const middle = (low + high + 1) >>> 1;
      if (this.has(keys, first + middle - 1)) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  has(keys: Uint32Array, block: number): boolean {
    return this.#find(keys[2 * block]!, keys[2 * block + 1]!) !== none;
  }

  /** Makes blocks [first, first + count) held and the most recently used, as far as there is room for them. */
  touch(keys: Uint32Array, first: number, count: number): void {
    for (let block = first + Math.min(count, this.capacityBlocks) - 1; block >= first; block--) {
      const low = keys[2 * block]!;
      const high = keys[2 * block + 1]!;
      let entry = this.#find(low, high);
      if (entry === none) entry = this.#insert(low, high);
      else this.#unlink(entry);
      this.#link(entry);
    }
  }

  /** Forgets everything: the instance lost its cache. */
  clear(): void {
    this.#heads.fill(none);
    this.#oldest = this.#newest = none;
    this.#size = 0;
  }

  #find(low: number, high: number): number {
    let entry = this.#heads[(low ^ high) & this.#mask]!;
    while (entry !== none && (this.#low[entry] !== low || this.#high[entry] !== high)) {
      entry = this.#chain[entry]!;
    }
    return entry;
  }

  #insert(low: number, high: number): number {
    let entry = this.#size;
    if (entry < this.capacityBlocks) this.#size++;
    else {
      entry = this.#oldest;
      this.#unlink(entry);
      this.#unchain(entry);
    }
    const bucket = (low ^ high) & this.#mask;
    this.#low[entry] = low;
    this.#high[entry] = high;
    this.#chain[entry] = this.#heads[bucket]!;
    this.#heads[bucket] = entry;
    return entry;
  }

  #unchain(entry: number): void {
    const bucket = (this.#low[entry]! ^ this.#high[entry]!) & this.#mask;
    let at = this.#heads[bucket]!;
    if (at === entry) {
      this.#heads[bucket] = this.#chain[entry]!;
      return;
    }
    while (this.#chain[at] !== entry) at = this.#chain[at]!;
    this.#chain[at] = this.#chain[entry]!;
  }

  #link(entry: number): void {
    this.#older[entry] = this.#newest;
    this.#newer[entry] = none;
    if (this.#newest === none) this.#oldest = entry;
    else this.#newer[this.#newest] = entry;
    this.#newest = entry;
  }

  #unlink(entry: number): void {
    const older = this.#older[entry]!;
    const newer = this.#newer[entry]!;
    if (older === none) this.#oldest = newer;
    else this.#newer[older] = newer;
    if (newer === none) this.#newest = older;
    else this.#older[newer] = older;
  }
}
