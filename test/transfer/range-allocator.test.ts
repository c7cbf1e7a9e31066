import { describe, expect, it } from 'vitest';
import fc from 'fast-check';
import { isDualPathError } from '../../src/errors/index.js';
import { RangeAllocator } from '../../src/transfer/index.js';

const codeOf = (call: () => unknown): string => {
  try {
    call();
    return 'none';
  } catch (error) {
    return isDualPathError(error) ? error.code : String(error);
  }
};

describe('RangeAllocator', () => {
  it('never gives an entry twice, and everything comes back', () => {
    const step = fc.oneof(
      fc.record({ take: fc.integer({ min: 0, max: 40 }) }),
      fc.record({ giveBack: fc.nat() }),
    );
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 100 }), fc.array(step, { maxLength: 80 }), (size, steps) => {
        const allocator = new RangeAllocator('things', size);
        const owner = new Array<boolean>(size).fill(false);
        const held: { offset: number; count: number }[] = [];
        const longestFree = (): number =>
          Math.max(
            ...owner
              .map((taken) => (taken ? 'x' : '.'))
              .join('')
              .split('x')
              .map((run) => run.length),
          );
        for (const one of steps) {
          if ('take' in one) {
            const { take: count } = one;
            if (count > longestFree()) {
              expect(codeOf(() => allocator.take(count))).toBe('CAPACITY_EXHAUSTED');
              continue;
            }
            const offset = allocator.take(count);
            for (let i = offset; i < offset + count; i++) {
              expect(owner[i]).toBe(false);
              owner[i] = true;
            }
            if (count > 0) held.push({ offset, count });
          } else if (held.length > 0) {
            const [range] = held.splice(one.giveBack % held.length, 1);
            allocator.giveBack(range!.offset, range!.count);
            owner.fill(false, range!.offset, range!.offset + range!.count);
          }
          expect(allocator.available).toBe(owner.filter((taken) => !taken).length);
        }
        for (const range of held) allocator.giveBack(range.offset, range.count);
        expect(allocator.take(size)).toBe(0); // joined to one range again
      }),
      { numRuns: 200 },
    );
  });

  it('refuses what is not taken', () => {
    const allocator = new RangeAllocator('things', 10);
    const offset = allocator.take(6);
    allocator.giveBack(offset + 2, 2);
    for (const [from, count] of [
      [offset + 2, 2],
      [offset + 1, 2],
      [offset + 3, 2],
      [offset, 6],
      [offset + 6, 1],
      [9, 2],
      [-1, 2],
      [0, -1],
      [0.5, 1],
      [0, Number.NaN],
    ] as const) {
      expect(codeOf(() => allocator.giveBack(from, count))).toBe('INTERNAL');
    }
    allocator.giveBack(offset, 2);
    allocator.giveBack(offset + 4, 2);
    expect(allocator.available).toBe(10);
  });

  it('names what is exhausted, and what would help', () => {
    const allocator = new RangeAllocator('keys', 8);
    allocator.take(5);
    expect(() => allocator.take(4)).toThrow(/no 4 consecutive keys free \(3 of 8 are\).*larger table/);
    for (const count of [-1, 1.5, Number.NaN, Number.POSITIVE_INFINITY]) {
      expect(codeOf(() => allocator.take(count))).toBe('INVALID_ARGUMENT');
    }
    expect(allocator.available).toBe(3);
    expect(codeOf(() => new RangeAllocator('none', 0).take(1))).toBe('CAPACITY_EXHAUSTED');
  });
});
