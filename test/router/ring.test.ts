import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { hash32, HashRing, type RingMember } from '../../src/router/index.js';

const names = fc.uniqueArray(fc.string({ minLength: 1, maxLength: 8 }), { minLength: 1, maxLength: 9 });
const hashes = fc.integer({ min: 0, max: 0xffffffff });

function ringOf(members: readonly RingMember[], seed: number, points = 20): HashRing<RingMember> {
  const ring = new HashRing<RingMember>(seed, points);
  for (const member of members) ring.add(member);
  return ring;
}

/** Places of a ring, seen from outside. */
function places(ring: HashRing<RingMember>): string[] {
  return Array.from({ length: ring.points }, (_, place) => ring.owner(place).name);
}

describe('HashRing', () => {
  it('gives a hash to the next place clockwise, as a scan of all places would', () => {
    fc.assert(
      fc.property(names, fc.nat(), fc.array(hashes, { minLength: 1 }), (members, seed, probes) => {
        const ring = ringOf(
          members.map((name) => ({ name, weight: 1 })),
          seed,
        );
        const positions = Array.from({ length: ring.points }, (_, place) => ring.position(place));
        expect(positions).toEqual([...positions].sort((a, b) => a - b));
        for (const hash of [...probes, 0, 0xffffffff, ...positions.slice(0, 5)]) {
          const scanned = positions.findIndex((position) => position >= hash);
          expect(ring.successor(hash)).toBe(Math.max(0, scanned));
        }
      }),
    );
  });

  it('is the same whatever order members came in, and after members came and went', () => {
    fc.assert(
      fc.property(names, fc.nat(), fc.nat(), (members, seed, turn) => {
        const all = members.map((name, i) => ({ name, weight: 1 + (i % 3) }));
        const turned = [...all.slice(turn % all.length), ...all.slice(0, turn % all.length)];
        const ring = ringOf(all, seed);
        const other = ringOf(turned, seed);
        expect(places(other)).toEqual(places(ring));
        other.add({ name: 'passing through', weight: 2 });
        expect(other.remove('passing through')).toBe(true);
        expect(places(other)).toEqual(places(ring));
      }),
    );
  });

  it('skips who is left out, without a change, and finds two different candidates', () => {
    fc.assert(
      fc.property(names, fc.nat(), hashes, fc.nat(), (members, seed, hash, sick) => {
        const all = members.map((name) => ({ name, weight: 1 }));
        const ring = ringOf(all, seed);
        const before = places(ring);
        const out = all[sick % all.length]!;
        const first = ring.pick(hash, undefined, () => true)!;
        expect(first.name).toBe(ring.owner(ring.successor(hash)).name);
        const second = ring.pick(hash, first, () => true);
        expect(second?.name).toBe(
          before
            .slice(ring.successor(hash))
            .concat(before)
            .find((name) => name !== first.name),
        );
        const healthy = ring.pick(hash, undefined, (member) => member !== out);
        if (all.length === 1) expect(healthy).toBeUndefined();
        else expect(healthy?.name).toBe(first === out ? second?.name : first.name);
        expect(places(ring)).toEqual(before);
      }),
    );
  });

  it('moves at most 2.2/n of the pairs when an instance comes or goes', () => {
    const keys = 20_000;
    for (const n of [8, 32]) {
      const rings = [ringOf([], 11, 1000), ringOf([], 12, 1000)] as const;
      for (let i = 0; i < n; i++) for (const ring of rings) ring.add({ name: `replica-${i}`, weight: 1 });
      const pairs = (): string[] =>
        Array.from({ length: keys }, (_, key) => {
          const first = rings[0].pick(hash32(key, 5, 1), undefined, () => true)!;
          const second = rings[1].pick(hash32(key, 5, 2), first, () => true)!;
          return [first.name, second.name].sort().join();
        });
      const before = pairs();
      for (const ring of rings) ring.add({ name: 'new', weight: 1 });
      const grown = pairs();
      for (const ring of rings) ring.remove('replica-3');
      const shrunk = pairs();
      const moved = (a: readonly string[], b: readonly string[]): number =>
        a.filter((pair, key) => pair !== b[key]).length / keys;
      expect(moved(before, grown)).toBeLessThanOrEqual(2.2 / n);
      expect(moved(grown, shrunk)).toBeLessThanOrEqual(2.2 / n);
      expect(moved(before, grown)).toBeGreaterThan(0);
    }
  });

  it('shares keys by weight', () => {
    const ring = ringOf(
      [
        { name: 'a', weight: 1 },
        { name: 'b', weight: 3 },
      ],
      3,
      1000,
    );
    let b = 0;
    for (let key = 0; key < 20_000; key++)
      if (ring.owner(ring.successor(hash32(key, 0, 9))).name === 'b') b++;
    expect(b / 20_000).toBeGreaterThan(0.7);
    expect(b / 20_000).toBeLessThan(0.8);
  });

  it('refuses a name that is taken, and more places than it may have', () => {
    const ring = ringOf([{ name: 'a', weight: 1 }], 0);
    expect(() => ring.add({ name: 'a', weight: 1 })).toThrow(/a is on the ring already/);
    expect(() => ring.add({ name: 'b', weight: 1e6 })).toThrow(/the limit is/);
    expect(ring.remove('c')).toBe(false);
    expect(ringOf([], 0).pick(1, undefined, () => true)).toBeUndefined();
  });
});
