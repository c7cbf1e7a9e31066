import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { PrefixIndex } from '../../src/router/index.js';
import { keysOf, prompts } from './support.js';

/** A least-recently-used cache of prefixes, in the plainest way. */
class PlainIndex {
  #held: string[] = [];

  constructor(readonly capacity: number) {}

  match(ids: readonly number[]): number {
    let count = 0;
    while (count < ids.length && this.#held.includes(ids.slice(0, count + 1).join())) count++;
    return count;
  }

  touch(ids: readonly number[]): void {
    for (let count = Math.min(ids.length, this.capacity); count > 0; count--) {
      const prefix = ids.slice(0, count).join();
      this.#held = this.#held.filter((each) => each !== prefix);
      if (this.#held.length === this.capacity) this.#held.shift();
      this.#held.push(prefix);
    }
  }

  get size(): number {
    return this.#held.length;
  }
}

describe('PrefixIndex', () => {
  it('holds what a plain least-recently-used cache holds', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 12 }),
        fc.array(prompts, { maxLength: 60 }),
        (capacity, touched) => {
          const index = new PrefixIndex(capacity);
          const plain = new PlainIndex(capacity);
          for (const ids of touched) {
            expect(index.match(keysOf(ids), 0, ids.length)).toBe(plain.match(ids));
            index.touch(keysOf(ids), 0, ids.length);
            plain.touch(ids);
            expect(index.size).toBe(plain.size);
            expect(index.match(keysOf(ids), 0, ids.length)).toBe(Math.min(ids.length, capacity));
          }
        },
      ),
    );
  });

  it('takes blocks from the middle of a table of keys', () => {
    const index = new PrefixIndex(4);
    const keys = keysOf([1, 2, 3, 4]);
    index.touch(keys, 2, 2);
    expect(index.match(keys, 2, 2)).toBe(2);
    expect(index.match(keys, 0, 2)).toBe(0);
    index.clear();
    expect(index.match(keys, 2, 2)).toBe(0);
    expect(index.size).toBe(0);
  });

  it('needs at most 146 KB for a cache of a million tokens in blocks of 512, whatever it has seen', () => {
    const index = new PrefixIndex(Math.floor(1_000_000 / 512));
    const { bytes } = index;
    expect(bytes).toBeLessThanOrEqual(146_000);
    const keys = new Uint32Array(128);
    for (let prompt = 0; prompt < 2000; prompt++) {
      for (let i = 0; i < keys.length; i++) keys[i] = prompt * 128 + i;
      index.touch(keys, 0, 64);
    }
    expect(index.bytes).toBe(bytes);
    expect(index.size).toBe(index.capacityBlocks);
  });

  it('refuses a capacity that is none', () => {
    for (const capacity of [0, -1, 1.5, NaN, 2 ** 40]) {
      expect(() => new PrefixIndex(capacity)).toThrow(/give a whole number from 1 to/);
    }
  });
});
