import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readTimeS, splitBlocks } from '../../src/scheduler/index.js';

const link = fc.record({
  readQueueBlocks: fc.nat(200),
  readRateBytesPerS: fc.integer({ min: 1, max: 50 }),
});

describe('splitBlocks', () => {
  it('equals trying every split', () => {
    fc.assert(
      fc.property(fc.nat(120), link, link, fc.nat(150), (blocks, prefill, decode, limit) => {
        const x = splitBlocks(blocks, prefill, decode, limit);
        expect(Number.isInteger(x) && x >= 0 && x <= Math.min(blocks, limit)).toBe(true);
        const finishS = (n: number): number =>
          Math.max(readTimeS(prefill, n, 64), readTimeS(decode, blocks - n, 64));
        let best = Infinity;
        for (let n = 0; n <= Math.min(blocks, limit); n++) best = Math.min(best, finishS(n));
        expect(finishS(x) - best).toBeLessThanOrEqual(best * 1e-12);
      }),
      { numRuns: 1000, seed: 20260226 },
    );
  });

  it('lets a side with a long queue read nothing', () => {
    const idle = { readQueueBlocks: 0, readRateBytesPerS: 10 };
    const busy = { readQueueBlocks: 100, readRateBytesPerS: 10 };
    expect(splitBlocks(50, busy, idle, 50)).toBe(0);
    expect(splitBlocks(50, idle, busy, 50)).toBe(50);
    expect(splitBlocks(50, idle, idle, 50)).toBe(25);
    expect(splitBlocks(50, idle, busy, 7)).toBe(7);
  });

  it('shares by rate when both are idle', () => {
    const fast = { readQueueBlocks: 0, readRateBytesPerS: 30e9 };
    const slow = { readQueueBlocks: 0, readRateBytesPerS: 10e9 };
    expect(splitBlocks(100, fast, slow, 100)).toBe(75);
  });
});

describe('readTimeS', () => {
  it('is queued and added bytes over the rate', () => {
    expect(readTimeS({ readQueueBlocks: 3, readRateBytesPerS: 500 }, 2, 100)).toBe(1);
  });
});
