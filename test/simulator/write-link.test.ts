import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { WriteLink } from '../../src/simulator/write-link.js';

/** Runs a link until nothing is left: [when, who] of each write's end. */
function drain(link: WriteLink, ends: [number, number][] = []): [number, number][] {
  for (let nextS = link.nextS(); nextS < Infinity; nextS = link.nextS()) {
    const owner = link.take(nextS);
    if (owner !== undefined) ends.push([nextS, owner]);
  }
  return ends;
}

describe('the write direction of a storage link', () => {
  it('serves who has least left', () => {
    const link = new WriteLink(100);
    link.add(0, 1, 150);
    link.add(0.5, 2, 20);
    expect(drain(link)).toEqual([
      [0.7, 2],
      [1.7, 1],
    ]);
    expect(link.totalBytes).toBe(170);
  });

  it('overtakes nobody for longer than 2 s', () => {
    const link = new WriteLink(100);
    link.add(0, 0, 200);
    const ends: [number, number][] = [];
    // A small write every half second would hold the large one up for ever.
    for (let i = 0; i < 6; i++) {
      link.add(i / 2, 1 + i, 50);
      const owner = link.take(link.nextS());
      if (owner !== undefined) ends.push([i, owner]);
    }
    drain(link, ends);
    const order = ends.map(([, owner]) => owner);
    expect(order.indexOf(0)).toBeLessThan(order.length - 1);
  });

  it('is busy while anything waits, and loses no byte', () => {
    const writes = fc.array(
      fc.record({
        gapS: fc.double({ min: 0, max: 2, noNaN: true }),
        bytes: fc.integer({ min: 1, max: 500 }),
      }),
      {
        minLength: 1,
        maxLength: 20,
      },
    );
    fc.assert(
      fc.property(writes, (given) => {
        const link = new WriteLink(100);
        const ends: [number, number][] = [];
        let nowS = 0;
        let freeS = 0;
        for (const [owner, { gapS, bytes }] of given.entries()) {
          nowS += gapS;
          for (let nextS = link.nextS(); nextS <= nowS; nextS = link.nextS()) {
            const ended = link.take(nextS);
            if (ended !== undefined) ends.push([nextS, ended]);
          }
          link.add(nowS, owner, bytes);
          freeS = Math.max(freeS, nowS) + bytes / 100;
        }
        drain(link, ends);
        expect(ends.map(([, owner]) => owner).sort((a, b) => a - b)).toEqual(given.map((_, owner) => owner));
        expect(ends.at(-1)![0]).toBeCloseTo(freeS, 6);
      }),
    );
  });
});
