/**
 * Ranges of a fixed table (counters, slot numbers, keys): first fit, neighbours joined when they come
 * back. One call a request, never one a block. The number of free ranges is bounded by the number of
 * ranges in use plus one.
 */
import { DualPathError } from '../errors/index.js';

export class RangeAllocator {
  readonly #what: string;
  readonly #size: number;
  /** Free ranges in ascending order, no two adjacent. */
  readonly #free: { offset: number; count: number }[];
  #available: number;

  constructor(what: string, size: number) {
    this.#what = what;
    this.#size = size;
    this.#free = size > 0 ? [{ offset: 0, count: size }] : [];
    this.#available = size;
  }

  get available(): number {
    return this.#available;
  }

  /** The longest range that can be taken now. */
  get longest(): number {
    return this.#free.reduce((longest, { count }) => Math.max(longest, count), 0);
  }

  /** @throws CAPACITY_EXHAUSTED when no free range is long enough, INVALID_ARGUMENT */
  take(count: number): number {
    if (!Number.isSafeInteger(count) || count < 0) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `${count} ${this.#what} asked for; a whole number from 0 to ${this.#size} is needed`,
        { asked: String(count), size: this.#size },
      );
    }
    if (count === 0) return 0;
    for (let i = 0; i < this.#free.length; i++) {
      const range = this.#free[i]!;
      if (range.count < count) continue;
      const { offset } = range;
      range.offset += count;
      range.count -= count;
      if (range.count === 0) this.#free.splice(i, 1);
      this.#available -= count;
      return offset;
    }
    throw new DualPathError(
      'CAPACITY_EXHAUSTED',
      `no ${count} consecutive ${this.#what} free (${this.#available} of ${this.#size} are); ` +
        'open the engine with a larger table or keep fewer requests in flight',
      { asked: count, available: this.#available, size: this.#size },
    );
  }

  /** @throws INTERNAL when any of the range is free already or outside of the table. */
  giveBack(offset: number, count: number): void {
    if (count === 0) return;
    const at = this.#indexAfter(offset);
    const before = this.#free[at - 1];
    const after = this.#free[at];
    const overlaps =
      !(Number.isSafeInteger(offset) && Number.isSafeInteger(count) && offset >= 0 && count > 0) ||
      offset + count > this.#size ||
      (before !== undefined && before.offset + before.count > offset) ||
      (after !== undefined && offset + count > after.offset);
    if (overlaps) {
      throw new DualPathError(
        'INTERNAL',
        `${this.#what} ${offset}..${offset + count} given back that are not taken`,
        {
          offset,
          count,
        },
      );
    }
    this.#available += count;
    const joinsBefore = before !== undefined && before.offset + before.count === offset;
    const joinsAfter = after !== undefined && offset + count === after.offset;
    if (joinsBefore) {
      before.count += count + (joinsAfter ? after.count : 0);
      if (joinsAfter) this.#free.splice(at, 1);
    } else if (joinsAfter) {
      after.offset = offset;
      after.count += count;
    } else {
      this.#free.splice(at, 0, { offset, count });
    }
  }

  /** Index of the first free range that starts after `offset`. */
  #indexAfter(offset: number): number {
    let low = 0;
    let high = this.#free.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.#free[middle]!.offset > offset) high = middle;
      else low = middle + 1;
    }
    return low;
  }
}
