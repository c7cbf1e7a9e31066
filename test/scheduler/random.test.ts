import { describe, expect, it } from 'vitest';
import { pickLeast, SeededRandom } from '../../src/scheduler/random.js';

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

describe('pickLeast', () => {
  const candidates = [3, 1, 2, 1, 5, 1].map((cost, place) => ({ cost, place }));
  const byCost = (a: { cost: number }, b: { cost: number }): number => a.cost - b.cost;

  it('takes each of the least about equally often, and nothing else', () => {
    const random = new SeededRandom(1);
    const counts = new Map<number | undefined, number>();
    for (let i = 0; i < 3000; i++) {
      const place = pickLeast(candidates, () => true, byCost, random)?.place;
      counts.set(place, (counts.get(place) ?? 0) + 1);
    }
    expect([...counts.keys()].sort()).toEqual([1, 3, 5]);
    for (const count of counts.values()) expect(Math.abs(count - 1000)).toBeLessThan(110);
  });

  it('considers only what fits', () => {
    const random = new SeededRandom(1);
    expect(pickLeast(candidates, ({ cost }) => cost > 1, byCost, random)?.cost).toBe(2);
    expect(pickLeast(candidates, () => false, byCost, random)).toBeUndefined();
  });
});
