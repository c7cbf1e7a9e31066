import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Crowd } from '../../src/proxy/crowd.js';

describe('a crowd', () => {
  it('has the members that a Map would have, and never gives a ticket twice', () => {
    const steps = fc.array(fc.tuple(fc.boolean(), fc.nat()), { maxLength: 200 });
    fc.assert(
      fc.property(steps, (moves) => {
        const crowd = new Crowd<number>();
        const plain = new Map<number, number>();
        const given: number[] = [];
        for (const [joins, pick] of moves) {
          if (joins || given.length === 0) {
            const ticket = crowd.add(pick);
            expect(given).not.toContain(ticket);
            given.push(ticket);
            plain.set(ticket, pick);
          } else {
            const ticket = given[pick % given.length]!;
            expect(crowd.remove(ticket)).toBe(plain.delete(ticket));
          }
          expect(crowd.size).toBe(plain.size);
        }
        for (const ticket of given) expect(crowd.get(ticket)).toBe(plain.get(ticket));
        expect([...crowd].sort()).toEqual([...plain.values()].sort());
      }),
    );
  });
});
