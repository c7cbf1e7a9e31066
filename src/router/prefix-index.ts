import { DualPathError } from '../errors/index.js';
import { routerLimits } from './limits.js';

/** Stands for "no entry" in the links. */
const none = 0xffffffff;

/** Words of an entry. An entry is named by the place of its first word. */
const stride = 5;
const low = 0;
const high = 1;
/** The next entry of the bucket. */
const chain = 2;
/** By use. */
const older = 3;
const newer = 4;

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
  /** First entry of each bucket. */
  readonly #heads: Uint32Array;
  /** Entries of `stride` words each, beside each other because a look-up in a large cluster waits for memory. */
  readonly #entries: Uint32Array;
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
    this.#entries = new Uint32Array(stride * capacityBlocks);
  }

  /** Blocks held. */
  get size(): number {
    return this.#size;
  }

  /** Bytes of the tables, whatever is held. */
  get bytes(): number {
    return 4 * (this.#heads.length + this.#entries.length);
  }

  /** How many of the blocks [first, first + count) are held: a leading part. */
  match(keys: Uint32Array, first: number, count: number): number {
    // Most instances hold nothing of a prompt.
    if (count === 0 || !this.has(keys, first)) return 0;
    let [least, most] = [1, count];
    while (least < most) {
      const middle = (least + most + 1) >>> 1;
      if (this.has(keys, first + middle - 1)) least = middle;
      else most = middle - 1;
    }
    return least;
  }

  has(keys: Uint32Array, block: number): boolean {
    return this.#find(keys[2 * block]!, keys[2 * block + 1]!) !== none;
  }

  /** Makes blocks [first, first + count) held and the most recently used, as far as there is room for them. */
  touch(keys: Uint32Array, first: number, count: number): void {
    for (let block = first + Math.min(count, this.capacityBlocks) - 1; block >= first; block--) {
      const [keyLow, keyHigh] = [keys[2 * block]!, keys[2 * block + 1]!];
      let entry = this.#find(keyLow, keyHigh);
      if (entry === none) entry = this.#insert(keyLow, keyHigh);
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

  #bucket(keyLow: number, keyHigh: number): number {
    const mixed = Math.imul(keyLow ^ Math.imul(keyHigh, 0x9e3779b1), 0x85ebca6b);
    return (mixed ^ (mixed >>> 15)) & this.#mask;
  }

  #find(keyLow: number, keyHigh: number): number {
    const entries = this.#entries;
    let entry = this.#heads[this.#bucket(keyLow, keyHigh)]!;
    while (entry !== none && (entries[entry + low] !== keyLow || entries[entry + high] !== keyHigh)) {
      entry = entries[entry + chain]!;
    }
    return entry;
  }

  #insert(keyLow: number, keyHigh: number): number {
    const entries = this.#entries;
    let entry = stride * this.#size;
    if (this.#size < this.capacityBlocks) this.#size++;
    else {
      entry = this.#oldest;
      this.#unlink(entry);
      this.#unchain(entry);
    }
    const bucket = this.#bucket(keyLow, keyHigh);
    entries[entry + low] = keyLow;
    entries[entry + high] = keyHigh;
    entries[entry + chain] = this.#heads[bucket]!;
    this.#heads[bucket] = entry;
    return entry;
  }

  #unchain(entry: number): void {
    const entries = this.#entries;
    const bucket = this.#bucket(entries[entry + low]!, entries[entry + high]!);
    let at = this.#heads[bucket]!;
    if (at === entry) {
      this.#heads[bucket] = entries[entry + chain]!;
      return;
    }
    while (entries[at + chain] !== entry) at = entries[at + chain]!;
    entries[at + chain] = entries[entry + chain]!;
  }

  #link(entry: number): void {
    this.#entries[entry + older] = this.#newest;
    this.#entries[entry + newer] = none;
    if (this.#newest === none) this.#oldest = entry;
    else this.#entries[this.#newest + newer] = entry;
    this.#newest = entry;
  }

  #unlink(entry: number): void {
    const itsOlder = this.#entries[entry + older]!;
    const itsNewer = this.#entries[entry + newer]!;
    if (itsOlder === none) this.#oldest = itsNewer;
    else this.#entries[itsOlder + newer] = itsNewer;
    if (itsNewer === none) this.#newest = itsOlder;
    else this.#entries[itsNewer + older] = itsOlder;
  }
}
