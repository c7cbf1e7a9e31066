import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, it } from 'vitest';
import type { Descriptor, ProgramResult } from '../../src/transfer/index.js';
import { errorOf, openEngine, openRuntime, sleep, turn } from './support.js';

describe('programs', () => {
  it('of a no-op end', async () => {
    const engine = openEngine();
    const before = process.hrtime.bigint();
    const result = await engine.submit([{ op: 'nop' }]).done;
    const after = process.hrtime.bigint();
    expect(result.bytesMoved).toBe(0);
    expect(result.submittedUs).toBeGreaterThanOrEqual(Number(before / 1000n));
    expect(result.finishedUs).toBeGreaterThanOrEqual(result.submittedUs);
    expect(result.finishedUs).toBeLessThanOrEqual(Number(after / 1000n) + 1);
  });

  it('wait for counters that others signal, whatever the order of submission', async () => {
    const engine = openEngine();
    const [first, second] = [engine.takeCounters(1), engine.takeCounters(1)];
    const order: string[] = [];
    const note = (name: string) => (): void => void order.push(name);
    const c = engine.submit([{ op: 'nop', waits: [{ counter: second, value: 3 }], event: true }], note('c'));
    const b = engine.submit(
      [
        {
          op: 'bump',
          waits: [
            { counter: first, value: 5 },
            { counter: second, value: 1 },
          ],
          signals: [{ counter: second, value: 2 }],
          event: true,
        },
      ],
      note('b'),
    );
    const a = engine.submit(
      [
        {
          op: 'bump',
          signals: [
            { counter: first, value: 5 },
            { counter: second, value: 1 },
          ],
          event: true,
        },
      ],
      note('a'),
    );
    await Promise.all([a.done, b.done, c.done]);
    expect(order).toEqual(['a', 'b', 'c']);
    expect([engine.counter(first), engine.counter(second)]).toEqual([5, 3]);
  });

  it('step through counters and values; ordered signals stand at the finished steps', async () => {
    const engine = openEngine();
    const counters = engine.takeCounters(4);
    const progress = engine.takeCounters(1);
    const steps: number[] = [];
    const walk = engine.submit(
      [
        {
          op: 'bump',
          steps: 4,
          waits: [{ counter: counters, counterStep: 1, value: 10, valueStep: 1 }],
          signals: [{ counter: progress, ordered: true, value: 100 }],
          event: true,
        },
      ],
      (step) => steps.push(step),
    );
    for (let i = 0; i < 4; i++) {
      await engine.submit([{ op: 'bump', signals: [{ counter: counters + i, value: 9 + i }] }]).done;
      expect(steps).toHaveLength(i);
      await engine.submit([{ op: 'bump', signals: [{ counter: counters + i, value: 1 }] }]).done;
      while (steps.length === i) await turn();
      expect(engine.counter(progress)).toBe(101 + i);
    }
    await walk.done;
    expect(steps).toEqual([0, 1, 2, 3]);
  });

  // A window of W layers: layer l waits for l - W + 1 layers to be free, the first W for none.
  it('wait for values that begin below zero', async () => {
    const engine = openEngine();
    const freed = engine.takeCounters(1);
    const steps: number[] = [];
    const program = engine.submit(
      [
        {
          op: 'nop',
          steps: 5,
          waits: [{ counter: freed, value: 1 - 3, valueStep: 1, skipSteps: 3 }],
          event: true,
        },
      ],
      (step) => steps.push(step),
    );
    while (steps.length < 3) await turn();
    await sleep(5);
    expect(steps).toEqual([0, 1, 2]);
    const free = (): Promise<ProgramResult> =>
      engine.submit([{ op: 'bump', signals: [{ counter: freed, value: 1 }] }]).done;
    await free();
    while (steps.length < 4) await turn();
    expect(steps).toEqual([0, 1, 2, 3]);
    await free();
    await program.done;
    expect(steps).toEqual([0, 1, 2, 3, 4]);
  });

  it('count to 2^53', async () => {
    const engine = openEngine();
    const counter = engine.takeCounters(1);
    const bump = (value: number): Promise<ProgramResult> =>
      engine.submit([{ op: 'bump', signals: [{ counter, value }] }]).done;
    await bump(2 ** 32 - 1);
    await bump(2);
    expect(engine.counter(counter)).toBe(2 ** 32 + 1);
    await bump(Number.MAX_SAFE_INTEGER - 2 ** 32 - 1);
    expect(engine.counter(counter)).toBe(Number.MAX_SAFE_INTEGER);
    await engine.submit([{ op: 'nop', waits: [{ counter, value: Number.MAX_SAFE_INTEGER }] }]).done;
    await bump(-(2 ** 40));
    expect(engine.counter(counter)).toBe(Number.MAX_SAFE_INTEGER - 2 ** 40);
  });

  it('are counted', async () => {
    const engine = openEngine();
    await engine.submit([{ op: 'nop' }, { op: 'bump', steps: 3 }]).done;
    await errorOf(engine.submit([{ op: 'nop' }, { op: 'send', ...somewhere }]).done);
    const { programs, failedPrograms, descriptors } = engine.statistics();
    expect({ programs, failedPrograms, descriptors }).toEqual({
      programs: 2,
      failedPrograms: 1,
      descriptors: 4,
    });
  });

  it('may throw from a step without harm to others', async () => {
    const engine = openEngine();
    const uncaught: unknown[] = [];
    const keep = (error: unknown): void => void uncaught.push(error);
    const others = process.listeners('uncaughtException');
    process.removeAllListeners('uncaughtException').on('uncaughtException', keep);
    try {
      const broken = engine.submit([{ op: 'nop', steps: 2, event: true }], (step) => {
        throw new Error(`step ${step}`);
      });
      await Promise.all([broken.done, engine.submit([{ op: 'nop' }]).done]);
      await turn();
    } finally {
      process.removeAllListeners('uncaughtException');
      for (const listener of others) process.on('uncaughtException', listener);
    }
    expect(uncaught.map(String)).toEqual(['Error: step 0', 'Error: step 1']);
  });

  it('may be submitted and closed over from a step', async () => {
    const engine = openEngine();
    let inner: Promise<ProgramResult> | undefined;
    let closing: Promise<void> | undefined;
    const never = engine.takeCounters(1);
    const outer = engine.submit(
      [
        { op: 'nop', steps: 2, event: true },
        { op: 'nop', waits: [{ counter: never, value: 1 }] },
      ],
      (step) => {
        if (step === 0) inner = engine.submit([{ op: 'nop', waits: [{ counter: never, value: 1 }] }]).done;
        else closing = engine.close();
        inner!.catch(() => undefined);
      },
    );
    expect((await errorOf(outer.done)).code).toBe('CLOSED');
    expect((await errorOf(inner!)).code).toBe('CLOSED');
    await closing;
  });
});

const somewhere = {
  from: 0,
  to: 0,
  fromSlots: 0,
  toSlots: 0,
  blocks: 1,
  firstBlock: 0,
  tokenBegin: 0,
  tokenEnd: 4,
  layers: 2,
} as const;

describe('limits', () => {
  it('a full ring says so and recovers', async () => {
    const engine = openEngine({ submissionEntries: 16, maxDescriptors: 16, maxPrograms: 64 });
    const gate = engine.takeCounters(1);
    const held: Promise<ProgramResult>[] = [];
    const two: Descriptor[] = [
      { op: 'nop', waits: [{ counter: gate, value: 1 }] },
      { op: 'nop', waits: [{ counter: gate, value: 1 }] },
    ];
    // Native code holds 16 descriptors, the ring 16 more.
    let full: Error | undefined;
    for (let i = 0; i < 200 && full === undefined; i++) {
      try {
        held.push(engine.submit(two).done);
      } catch (error) {
        full = error as Error;
        if (held.length < 16) full = await sleep(5).then(() => undefined); // not taken in yet
      }
    }
    expect(full).toMatchObject({
      code: 'CAPACITY_EXHAUSTED',
      message: expect.stringMatching(/room for 0 descriptors and 48 programs; wait for a program to end/),
    });
    expect(held).toHaveLength(16);
    expect(engine.room).toEqual({ descriptors: 0, programs: 48 });
    // The gate cannot be opened through this ring; its memory can.
    engine.cancel({ id: 0, done: held[0]! });
    const opener = openEngine({ runtime: engine.runtime });
    await opener.submit([
      { op: 'bump', peer: opener.connect(engine.name), signals: [{ counter: gate, value: 1, remote: true }] },
    ]).done;
    await Promise.all(held);
    expect(engine.room).toEqual({ descriptors: 16, programs: 64 });
    await Promise.all(Array.from({ length: 8 }, () => engine.submit([{ op: 'nop' }]).done));
  });

  it('a full program table says so and recovers', async () => {
    const engine = openEngine({ maxPrograms: 4 });
    const gate = engine.takeCounters(1);
    const wait: Descriptor[] = [{ op: 'nop', waits: [{ counter: gate, value: 1 }] }];
    const programs = Array.from({ length: 4 }, () => engine.submit(wait));
    const done = Promise.allSettled(programs.map((program) => program.done));
    expect((await errorOf(() => engine.submit(wait))).code).toBe('CAPACITY_EXHAUSTED');
    for (const program of programs) engine.cancel(program);
    expect((await done).map((one) => one.status)).toEqual(Array.from({ length: 4 }, () => 'rejected'));
    await engine.submit([{ op: 'nop' }]).done;
  });

  it('a program that no ring could hold is refused for good', async () => {
    const engine = openEngine({ submissionEntries: 8 });
    const nops = (count: number): Descriptor[] => Array.from({ length: count }, () => ({ op: 'nop' }));
    expect(await errorOf(() => engine.submit(nops(9)))).toMatchObject({
      code: 'REQUEST_TOO_LARGE',
      message: expect.stringMatching(/9 descriptors, 1 to 8 are possible; .*submissionEntries/),
    });
    expect((await errorOf(() => engine.submit([]))).code).toBe('INVALID_ARGUMENT');
    await engine.submit(nops(8)).done;
  });

  it('program numbers are used again, with another generation every time', async () => {
    const engine = openEngine({ maxPrograms: 1 });
    const ids = new Set<number>();
    const first = engine.submit([{ op: 'nop' }]);
    await first.done;
    ids.add(first.id);
    for (let i = 1; i < 300; i++) {
      const program = engine.submit([{ op: 'nop' }]);
      engine.cancel(first); // has ended: cancels nothing
      await program.done;
      ids.add(program.id);
    }
    expect(ids.size).toBe(300);
  });

  it('many programs in flight all end, and cost no memory that stays', async () => {
    const engine = openEngine();
    const round = async (): Promise<void> => {
      const counter = engine.takeCounters(1);
      const programs = Array.from({ length: 500 }, (_, i) =>
        engine.submit([
          { op: 'bump', steps: 3, waits: [{ counter, value: i }], signals: [{ counter, value: 1 }] },
        ]),
      );
      await Promise.all(programs.map((program) => program.done));
      expect(engine.counter(counter)).toBe(1500);
      engine.counters.giveBack(counter, 1);
    };
    setFlagsFromString('--expose-gc');
    const collect = runInNewContext('gc') as () => void;
    const used = (): number => {
      collect();
      return process.memoryUsage().heapUsed;
    };
    for (let i = 0; i < 5; i++) await round();
    const before = used();
    for (let i = 0; i < 20; i++) await round();
    // 10,000 programs; what each would leave behind is well over 100 bytes.
    expect(used() - before).toBeLessThan(1e6);
  });

  it('a taken name, and options that cannot be, are refused', async () => {
    const runtime = openRuntime();
    const engine = openEngine({ runtime, name: 'the one' });
    expect(await errorOf(() => openEngine({ runtime, name: 'the one' }))).toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: expect.stringMatching(/'the one' is already on the loopback transport; choose another name/),
    });
    expect((await errorOf(() => openEngine({ submissionEntries: 3 }))).code).toBe('INVALID_ARGUMENT');
    expect((await errorOf(() => openEngine({ maxPrograms: 4096 }))).code).toBe('INVALID_ARGUMENT');
    expect((await errorOf(() => openEngine({ counterEntries: 0 }))).code).toBe('INVALID_ARGUMENT');
    await engine.close();
    await openEngine({ runtime, name: 'the one' }).submit([{ op: 'nop' }]).done;
  });
});
