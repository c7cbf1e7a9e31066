/** Slots that several requests refer to: free when the last of them lets go. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { BlockSpace, type BlockList } from '../../src/memory/index.js';
import { errorOf, openEngine, plainMemory, turn } from '../transfer/support.js';

const openSpace = (slots: number): BlockSpace => new BlockSpace(openEngine(), plainMemory(slots).geometry);
const slotsOf = (space: BlockSpace, list: BlockList): number[] => [
  ...space.engine.slots(list.offset, list.count),
];

describe('shared blocks', () => {
  it('a prefix of two requests is free when both have ended', async () => {
    const space = openSpace(8);
    const first = await space.take(5);
    const prefix = slotsOf(space, first).slice(0, 3);
    const second = space.join(space.share(first, 3), await space.take(2));
    expect(slotsOf(space, second).slice(0, 3)).toEqual(prefix);
    expect([second.count, space.available]).toEqual([5, 1]);
    first.release();
    first.release();
    expect(space.available).toBe(3); // its own two, and not the prefix
    const waiting = space.take(8);
    await turn();
    second.release();
    const all = await waiting; // the last reference serves who waits
    expect(slotsOf(space, all).toSorted((a, b) => a - b)).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
    all.release();
    expect(space.engine.slotTable.available).toBe(1 << 20);
  });

  it('is of what is held, and no more than that', async () => {
    const space = openSpace(4);
    const list = await space.take(2);
    const refused = async (call: () => unknown): Promise<string> => (await errorOf(call)).message;
    expect(await refused(() => space.share(list, 3))).toMatch(/3 blocks to share of a list of 2; share/);
    expect(await refused(() => space.share(list, 0.5))).toMatch(/0.5 blocks to share/);
    expect(await refused(() => openSpace(2).share(list, 1))).toMatch(/not held here/);
    expect(await refused(() => space.join(list, list))).toMatch(/not both held/);
    list.release();
    expect(await refused(() => space.share(list, 1))).toMatch(/not held here/);
    expect(space.available).toBe(4);
  });

  it('property: a slot is free exactly when no list has it', () => {
    const step = fc.record({
      what: fc.constantFrom('take', 'share', 'join', 'release', 'release'),
      which: fc.nat(),
      count: fc.integer({ min: 0, max: 4 }),
    });
    const engine = openEngine();
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const space = new BlockSpace(engine, plainMemory(10).geometry);
        const held: { list: BlockList; slots: number[] }[] = [];
        const keep = (list: BlockList): void => {
          held.push({ list, slots: slotsOf(space, list) });
        };
        const remove = (which: number) => held.splice(which % held.length, 1)[0]!;
        for (const { what, which, count } of steps) {
          if (what === 'take') {
            const list = space.tryTake(count);
            if (list !== undefined) keep(list);
          } else if (held.length > 0 && what === 'share') {
            const { list } = held[which % held.length]!;
            keep(space.share(list, Math.min(count, list.count)));
          } else if (held.length > 1 && what === 'join') {
            const [a, b] = [remove(which), remove(which)];
            const joined = space.join(a.list, b.list);
            expect(slotsOf(space, joined)).toEqual([...a.slots, ...b.slots]);
            keep(joined);
          } else if (held.length > 0 && what === 'release') {
            remove(which).list.release();
          }
          const used = new Set(held.flatMap(({ slots }) => slots));
          expect(space.available).toBe(10 - used.size);
          for (const { list, slots } of held) expect(slotsOf(space, list)).toEqual(slots);
        }
        for (const { list } of held) list.release();
        expect([space.available, engine.slotTable.available]).toEqual([10, 1 << 20]);
      }),
      { numRuns: 60 }, // an engine has room for 64 geometries
    );
  });
});
