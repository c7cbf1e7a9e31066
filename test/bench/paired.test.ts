import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { estimateRatio, median } from '../../src/bench/paired.js';

const rate = fc.double({ min: 1, max: 1e10, noNaN: true });
const pairs = fc.array(fc.tuple(rate, rate), { minLength: 2, maxLength: 60 });

describe('estimateRatio', () => {
  it('is the geometric mean, with a half-width of nothing where all pairs agree', () => {
    fc.assert(
      fc.property(
        rate,
        fc.double({ min: 0.1, max: 10, noNaN: true }),
        fc.integer({ min: 2, max: 40 }),
        (x, r, n) => {
          const estimate = estimateRatio(Array.from({ length: n }, () => [x * r, x] as const));
          expect(estimate.ratio).toBeCloseTo(r, 6);
          expect(estimate.halfWidth).toBeLessThan(1e-6);
        },
      ),
    );
  });

  it('turned round gives one over the ratio, and the same width relative to it', () => {
    fc.assert(
      fc.property(pairs, (list) => {
        const there = estimateRatio(list);
        const back = estimateRatio(list.map(([ours, theirs]) => [theirs, ours] as const));
        expect(Math.log(there.ratio)).toBeCloseTo(-Math.log(back.ratio), 9);
        expect(there.halfWidth / there.ratio).toBeCloseTo(back.halfWidth / back.ratio, 9);
      }),
    );
  });

  it('does not see a drift that both share', () => {
    const drifting = Array.from({ length: 10 }, (_, i) => [2 * (i + 1), i + 1] as const);
    expect(estimateRatio(drifting)).toEqual({ ratio: expect.closeTo(2, 9), halfWidth: expect.closeTo(0, 9) });
  });

  it('is the t interval of the logarithms', () => {
    const e = Math.E;
    // Logarithms 0, 1, 2: mean 1, deviation 1, t(2) = 4.303.
    const { ratio, halfWidth } = estimateRatio([
      [1, 1],
      [e, 1],
      [e * e, 1],
    ]);
    expect(ratio).toBeCloseTo(e, 9);
    expect(halfWidth).toBeCloseTo((e * 4.303) / Math.sqrt(3), 6);
  });

  it('refuses what is no comparison', () => {
    expect(() => estimateRatio([[1, 1]])).toThrow('at least 2');
    expect(() => estimateRatio([[1, 1], [0, 1]])).toThrow('above 0'); // prettier-ignore
  });
});

describe('median', () => {
  it('has as many below as above', () => {
    fc.assert(
      fc.property(fc.array(rate, { minLength: 1 }), (values) => {
        const middle = median(values);
        const below = values.filter((value) => value < middle).length;
        const above = values.filter((value) => value > middle).length;
        expect(Math.max(below, above)).toBeLessThanOrEqual(values.length / 2);
      }),
    );
  });
});
