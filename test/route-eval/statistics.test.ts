import { describe, expect, it } from 'vitest';
import { estimate, goodputOf, pairedRatio } from '../../src/route-eval/statistics.js';

describe('goodputOf', () => {
  it('is the highest rate that meets the target, and from there linear', () => {
    expect(goodputOf([4, 6, 8], [1, 0.95, 0.85]).qps).toBeCloseTo(7, 9);
    expect(goodputOf([4, 6, 8], [1, 0.95, 0.95])).toEqual({ qps: 8, isAtLeast: true });
    expect(goodputOf([4, 6, 8], [1, 0.5, 0.9])).toEqual({ qps: 8, isAtLeast: true });
    expect(goodputOf([4, 6, 8], [1, 0.9, 0.5])).toEqual({ qps: 6, isAtLeast: false });
    // Below the grid the line begins at rate 0, where all is well.
    expect(goodputOf([4, 6], [0.8, 0.1]).qps).toBeCloseTo(2, 9);
  });
});

describe('estimate', () => {
  it("is the mean with Student's interval", () => {
    const { mean, low, high, seeds } = estimate([1, 2, 3, 4]);
    // By hand: s = 1.290994, t(3) = 3.182, half = 3.182 x 1.290994 / 2.
    expect([mean, seeds]).toEqual([2.5, 4]);
    expect(high - mean).toBeCloseTo(2.05397, 4);
    expect(mean - low).toBeCloseTo(2.05397, 4);
    expect(estimate([7])).toEqual({ mean: 7, low: 7, high: 7, seeds: 1 });
  });
});

describe('pairedRatio', () => {
  it('compares seed by seed', () => {
    expect(pairedRatio([2, 20, 200], [1, 10, 100])).toEqual({ mean: 2, low: 2, high: 2, seeds: 3 });
    expect(pairedRatio([1, 1], [0, 2])).toMatchObject({ mean: 0.5, seeds: 1 });
    expect(pairedRatio([1], [0]).seeds).toBe(0);
  });
});
