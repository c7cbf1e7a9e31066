import { describe, expect, it } from 'vitest';
import fc from 'fast-check';
import { BlockSpace, type BlockList } from '../../src/memory/index.js';
import { errorOf, openEngine, openRuntime, plainMemory, turn } from '../transfer/support.js';

const openSpace = (slots: number, slotEntries = 1024): BlockSpace =>
  new BlockSpace(openEngine({ slotEntries }), plainMemory(slots).geometry);

const slotsOf = (space: BlockSpace, list: BlockList): number[] => [
  ...space.engine.slots(list.offset, list.count),
];

describe('BlockSpace', () => {
  it('serves those who wait in their order, the small behind the large', async () => {
    const space = openSpace(8);
    const first = await space.take(6);
    const served: string[] = [];
    const wait = (name: string, count: number): Promise<BlockList> =>
      space.take(count).then((list) => {
        served.push(name);
        return list;
      });
    const large = wait('large', 5);
    const small = wait('small', 1);
    expect(space.tryTake(1)).toBeUndefined(); // 2 are free, but others wait
    await turn();
    expect(served).toEqual([]);
    first.release();
    const lists = await Promise.all([large, small]);
    expect(served).toEqual(['large', 'small']);
    expect(space.available).toBe(2);
    for (const list of lists) list.release();
    expect([space.available, space.highWater]).toEqual([8, 6]);
  });

  it('lets an aborted one go, and serves those behind it', async () => {
    const space = openSpace(4);
    const held = await space.take(3);
    const abort = new AbortController();
    const large = errorOf(space.take(4, abort.signal));
    const small = space.take(1);
    abort.abort(new Error('changed my mind'));
    expect(await large).toMatchObject({ code: 'CANCELLED', cause: new Error('changed my mind') });
    (await small).release();
    expect((await errorOf(space.take(1, AbortSignal.abort()))).code).toBe('CANCELLED');
    held.release();
    // Too late to abort what has been served.
    const late = new AbortController();
    const list = await space.take(4, late.signal);
    late.abort();
    list.release();
    expect(space.available).toBe(4);
  });

  it('leaves no listener on a signal', async () => {
    const space = openSpace(2);
    const abort = new AbortController();
    let listeners = 0;
    const { signal } = abort;
    const add = signal.addEventListener.bind(signal);
    const remove = signal.removeEventListener.bind(signal);
    signal.addEventListener = (...args: unknown[]): void => {
      listeners++;
      (add as (...args: unknown[]) => void)(...args);
    };
    signal.removeEventListener = (...args: unknown[]): void => {
      listeners--;
      (remove as (...args: unknown[]) => void)(...args);
    };
    const held = await space.take(2, signal);
    const waiting = Array.from({ length: 8 }, () => space.take(1, signal));
    held.release();
    for (const one of waiting) (await one).release();
    await turn();
    expect(listeners).toBe(0);
  });

  it('refuses what can never be, and what is no number of blocks', async () => {
    const space = openSpace(4);
    const error = await errorOf(space.take(5));
    expect(error).toMatchObject({ code: 'REQUEST_TOO_LARGE', details: { blocks: 5, limit_blocks: 4 } });
    expect(error.message).toMatch(/5 blocks needed, 'engine-\d+' has 4 in all; give it more memory/);
    for (const count of [-1, 0.5, Number.NaN]) {
      expect((await errorOf(space.take(count))).code).toBe('INVALID_ARGUMENT');
      expect((await errorOf(() => space.tryTake(count))).code).toBe('INVALID_ARGUMENT');
    }
    const none = await space.take(0);
    none.release();
    expect(space.available).toBe(4);
  });

  it('takes back once', async () => {
    const space = openSpace(4);
    const [a, b] = [await space.take(2), await space.take(2)];
    a.release();
    a.release();
    expect(space.available).toBe(2);
    const c = await space.take(2);
    a.release();
    expect(space.available).toBe(0);
    expect(new Set([...slotsOf(space, b), ...slotsOf(space, c)]).size).toBe(4);
    for (const list of [b, c]) list.release();
  });

  it('tells those who wait that the engine, or its runtime, closes', async () => {
    const runtime = openRuntime();
    const engine = openEngine({ runtime });
    const space = new BlockSpace(engine, plainMemory(1).geometry);
    const other = new BlockSpace(openEngine({ runtime }), plainMemory(1).geometry);
    const lists = [await space.take(1), await other.take(1)];
    const errors = [errorOf(space.take(1)), errorOf(other.take(1))];
    await engine.close();
    expect((await errors[0]!).code).toBe('CLOSED');
    expect((await errorOf(space.take(1))).code).toBe('CLOSED');
    runtime.close();
    expect((await errors[1]!).code).toBe('CLOSED');
    for (const list of lists) list.release();
    expect(space.available).toBe(1);
  });

  it('hands a full slot table to the one who waits, not to the one who gives back', async () => {
    const space = openSpace(8, 8);
    const held = await space.take(4);
    const elsewhere = space.engine.slotTable.take(4);
    const waiting = errorOf(space.take(8));
    const behind = space.take(2);
    held.release();
    expect((await waiting).code).toBe('CAPACITY_EXHAUSTED');
    (await behind).release();
    space.engine.slotTable.giveBack(elsewhere, 4);
    (await space.take(8)).release();
  });

  it('never gives a slot twice, forgets nobody, and gets everything back', async () => {
    const step = fc.oneof(
      { weight: 3, arbitrary: fc.record({ take: fc.integer({ min: 0, max: 12 }) }) },
      { weight: 2, arbitrary: fc.record({ release: fc.nat() }) },
      { weight: 1, arbitrary: fc.record({ abort: fc.nat() }) },
    );
    const engine = openEngine();
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
        const space = new BlockSpace(engine, plainMemory(12).geometry);
        const owned = new Set<number>();
        const held: BlockList[] = [];
        const waiting: AbortController[] = [];
        const settled: Promise<void>[] = [];
        const served: number[] = [];
        let asked = 0;
        const keep = (list: BlockList): void => {
          for (const slot of slotsOf(space, list)) {
            expect(owned.has(slot)).toBe(false);
            owned.add(slot);
          }
          held.push(list);
        };
        const giveBack = (list: BlockList): void => {
          for (const slot of slotsOf(space, list)) owned.delete(slot);
          list.release();
        };
        for (const one of steps) {
          if ('take' in one) {
            const abort = new AbortController();
            waiting.push(abort);
            const number = asked++;
            settled.push(
              space.take(one.take, abort.signal).then(
                (list) => {
                  served.push(number);
                  keep(list);
                },
                (error: unknown) => expect(error).toMatchObject({ code: 'CANCELLED' }),
              ),
            );
          } else if ('release' in one) {
            if (held.length > 0) giveBack(held.splice(one.release % held.length, 1)[0]!);
          } else if (waiting.length > 0) {
            waiting[one.abort % waiting.length]!.abort();
          }
          for (let i = 0; i < 8; i++) await Promise.resolve();
          expect(space.available).toBe(12 - owned.size);
        }
        let over = false;
        const all = Promise.all(settled).then(() => (over = true));
        for (let i = 0; !over && i < 1000; i++) {
          for (const list of held.splice(0)) giveBack(list);
          await turn();
        }
        await all;
        for (const list of held.splice(0)) giveBack(list);
        expect(served).toEqual(served.toSorted((a, b) => a - b)); // first come, first served
        expect([space.available, owned.size]).toEqual([12, 0]);
      }),
      { numRuns: 60 },
    );
    expect(engine.slotTable.available).toBe(1 << 20);
  });
});
