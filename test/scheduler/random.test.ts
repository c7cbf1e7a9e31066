import { describe, expect, it } from 'vitest';
import { SeededRandom } from '../../src/scheduler/random.js';

describe('SeededRandom', () => {
  it('repeats itself for a seed and spreads over the range', () => {
    const draw = (seed: number): number[] => {
      const random = new SeededRandom(seed);
      return Array.from({ length: 6000 }, () => random.below(6));
    };
    const drawn = draw(5);
    expect(draw(5)).toEqual(drawn);
    expect(draw(6)).not.toEqual(drawn);
    for (let face = 0; face < 6; face++) {
      const count = drawn.filter((value) => value === face).length;
      expect(Math.abs(count - 1000)).toBeLessThan(120); // 4 standard deviations
    }
  });
});
