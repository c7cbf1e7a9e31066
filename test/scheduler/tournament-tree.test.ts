import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SeededRandom } from '../../src/scheduler/random.js';
import { TournamentTree } from '../../src/scheduler/tournament-tree.js';

interface Leaf {
  readonly values: [number, number];
  readonly room: number;
}

const leafArbitrary: fc.Arbitrary<Leaf> = fc.record({
  values: fc.tuple(fc.constantFrom(0, 1, 2, 5, Infinity), fc.nat(6)),
  room: fc.nat(5),
});

describe('TournamentTree', () => {
  it('finds what a look at every leaf finds', () => {
    const query = fc.record({
      order: fc.nat(1),
      from: fc.nat(40),
      length: fc.nat(40),
      limits: fc.tuple(fc.constantFrom(1, 4, Infinity), fc.constantFrom(0, 3, Infinity)),
      need: fc.nat(6),
      change: fc.tuple(fc.nat(100), leafArbitrary),
    });
    fc.assert(
      fc.property(
        fc.array(leafArbitrary, { minLength: 1, maxLength: 40 }),
        fc.array(query, { maxLength: 30 }),
        (leaves, queries) => {
          const tree = new TournamentTree(leaves.length, 2, 1, new SeededRandom(1));
          const set = (i: number, { values, room }: Leaf): void => {
            leaves[i] = { values, room };
            values.forEach((value, order) => tree.setValue(i, order, value));
            tree.setRoom(i, 0, room);
            tree.update(i);
          };
          leaves.forEach((leaf, i) => set(i, leaf));
          for (const { order, from, length, limits, need, change } of queries) {
            set(change[0] % leaves.length, change[1]);
            limits.forEach((limit, i) => tree.limit(i, limit));
            tree.need(0, need);
            const fit = leaves
              .map((leaf, i) => ({ ...leaf, i }))
              .filter(
                ({ values, room, i }) =>
                  i >= from &&
                  i < from + length &&
                  values[order]! < Infinity &&
                  values.every((value, j) => value <= limits[j]!) &&
                  room >= need,
              );
            const least = Math.min(...fit.map(({ values }) => values[order]!));
            const best = fit.filter(({ values }) => values[order] === least).map(({ i }) => i);
            const found = tree.least(order, from, from + length);
            if (best.length === 0) expect(found).toBe(-1);
            else expect(best).toContain(found);
          }
        },
      ),
      { numRuns: 300, seed: 20260226 },
    );
  });

  it('breaks ties by seed, evenly', () => {
    const counts = new Array<number>(8).fill(0);
    const tree = new TournamentTree(8, 1, 0, new SeededRandom(7));
    for (let i = 0; i < 8; i++) {
      tree.setValue(i, 0, 0);
      tree.update(i);
    }
    for (let i = 0; i < 8000; i++) {
      const leaf = tree.least(0);
      counts[leaf]!++;
      for (const value of [1, 0]) {
        tree.setValue(leaf, 0, value); // as an engine that is given a request and finishes it
        tree.update(leaf);
      }
    }
    for (const count of counts) expect(count).toBeGreaterThan(800);
  });
});
