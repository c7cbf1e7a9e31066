/** Cancel, close, lost peers: whatever happens, every promise settles. */
import { describe, expect, it } from 'vitest';
import type { Descriptor, LayersDescriptor, TransferEngine } from '../../src/transfer/index.js';
import { native } from '../../src/binding/index.js';
import { errorOf, openEngine, openRuntime, plainMemory, turn } from './support.js';

const forEver = (engine: TransferEngine): Descriptor => ({
  op: 'nop',
  waits: [{ counter: engine.takeCounters(1), value: 1 }],
});

const send = (peer: number, blocks: number): LayersDescriptor => ({
  op: 'send',
  peer,
  from: 0,
  to: 0,
  fromSlots: 0,
  toSlots: 0,
  blocks,
  firstBlock: 0,
  tokenBegin: 0,
  tokenEnd: 4 * blocks,
  layers: 2,
});

function fill(engine: TransferEngine, slots: number): Uint8Array {
  const { geometry, bytes } = plainMemory(slots);
  engine.addGeometry(geometry);
  engine.setSlots(
    0,
    Array.from({ length: slots }, (_, i) => i),
  );
  return bytes;
}

describe('cancel', () => {
  it('ends a program before it is taken in, and one that waits', async () => {
    const engine = openEngine();
    const [early, late] = [engine.submit([forEver(engine)]), engine.submit([forEver(engine), { op: 'nop' }])];
    engine.cancel(early);
    expect((await errorOf(early.done)).code).toBe('CANCELLED');
    engine.cancel(late);
    engine.cancel(late);
    expect(await errorOf(late.done)).toMatchObject({
      code: 'CANCELLED',
      message: expect.stringMatching(/^a program of engine 'engine-\d+' was cancelled$/),
    });
    engine.cancel(late); // over: nothing happens
    await engine.submit([{ op: 'nop' }]).done;
  });

  it('of one that is moving bytes lets what is under way arrive, and no more', async () => {
    const link = new (native().NicLink)({ name: 'cancel/egress', bytesPerS: 64_000 });
    const engine = openEngine({ nicEgress: link });
    const bytes = fill(engine, 4);
    engine.addGeometry(plainMemory(4).geometry);
    bytes.fill(1);
    let steps = 0;
    // 2 layers of 256 bytes at 64 kB/s: 4 ms each, a thousand times.
    const once: Descriptor = { ...send(0, 4), op: 'copy', to: 1, event: true };
    const program = engine.submit(
      Array.from({ length: 1000 }, () => once),
      () => {
        if (++steps === 3) engine.cancel(program);
      },
    );
    expect((await errorOf(program.done)).code).toBe('CANCELLED');
    const { copySteps } = engine.statistics();
    expect(copySteps).toBeGreaterThanOrEqual(3);
    expect(copySteps).toBeLessThan(1000);
    await turn();
    expect(engine.statistics().copySteps).toBe(copySteps);
  });
});

describe('close', () => {
  it('settles programs that would wait for ever', async () => {
    const engine = openEngine();
    const programs = Array.from({ length: 100 }, () => engine.submit([{ op: 'nop' }, forEver(engine)]));
    const errors = Promise.all(programs.map((program) => errorOf(program.done)));
    const closing = engine.close();
    expect(engine.close()).toBe(closing);
    expect(new Set((await errors).map((error) => error.code))).toEqual(new Set(['CLOSED']));
    await closing;
    expect((await errorOf(() => engine.submit([{ op: 'nop' }]))).code).toBe('CLOSED');
    const range = { firstToken: 0, blockTokens: 1, blocks: 1, keyOffset: 0, lookUp: false };
    expect((await errorOf(engine.hash(new Uint32Array(1), range))).code).toBe('CLOSED');
    engine.cancel(programs[0]!);
    expect(engine.statistics().failedPrograms).toBe(100);
  });

  it('of the runtime settles them too', async () => {
    const runtime = openRuntime();
    const engine = openEngine({ runtime });
    const other = openEngine();
    const peer = other.connect(engine.name);
    const error = errorOf(engine.submit([forEver(engine)]).done);
    runtime.close();
    runtime.close();
    expect((await error).code).toBe('CLOSED');
    expect((await errorOf(() => engine.submit([{ op: 'nop' }]))).code).toBe('CLOSED');
    expect((await errorOf(() => openEngine({ runtime }))).code).toBe('CLOSED');
    // And its peers hear of it.
    const late = other.submit([{ op: 'bump', peer, signals: [{ counter: 0, value: 1, remote: true }] }]);
    expect((await errorOf(late.done)).code).toBe('PEER_LOST');
    await engine.close();
  });

  it('of the runtime while an engine closes leaves nothing waiting', async () => {
    const runtime = openRuntime();
    const engine = openEngine({ runtime });
    const error = errorOf(engine.submit([forEver(engine)]).done);
    const closing = engine.close();
    runtime.close();
    await closing;
    expect((await error).code).toBe('CLOSED');
  });
});

describe('two engines', () => {
  it('send blocks and raise counters at the other', async () => {
    const [a, b] = [openEngine(), openEngine()];
    const [from, to] = [fill(a, 8), fill(b, 8)];
    from.forEach((_, i) => (from[i] = i * 7));
    a.setSlots(0, [5, 0, 3]);
    a.setSlots(8, [1, 2, 6]); // slots of the peer, in our table
    const arrived = b.takeCounters(1);
    const seen = b.submit([{ op: 'nop', waits: [{ counter: arrived, value: 2 }] }]).done;
    const signals = [{ counter: arrived, value: 1, remote: true }];
    const sent = await a.submit([{ ...send(a.connect(b.name), 3), toSlots: 8, signals }]).done;
    expect(sent.bytesMoved).toBe(3 * 128);
    await seen;
    const expected = new Uint8Array(to.length);
    [5, 0, 3].forEach((slot, i) => {
      expected.set(from.subarray(slot * 128, (slot + 1) * 128), [1, 2, 6][i]! * 128);
    });
    expect(to).toEqual(expected);
    expect(a.statistics()).toMatchObject({ sendBytes: 384, sendSteps: 2 });
  });

  it('a peer that has closed is lost, at once or half-way', async () => {
    const link = new (native().NicLink)({ name: 'lost/egress', bytesPerS: 64_000 });
    const [a, b] = [openEngine({ nicEgress: link }), openEngine()];
    fill(a, 4);
    fill(b, 4);
    const peer = a.connect(b.name);
    let steps = 0;
    let closing: Promise<void> | undefined;
    const program = a.submit(
      Array.from({ length: 200 }, () => ({ ...send(peer, 4), event: true })),
      () => {
        if (++steps === 2) closing = b.close();
      },
    );
    expect((await errorOf(program.done)).code).toBe('PEER_LOST');
    await closing;
    expect((await errorOf(a.submit([send(peer, 4)]).done)).code).toBe('PEER_LOST');
    expect(await errorOf(() => a.connect(b.name))).toMatchObject({
      code: 'PEER_LOST',
      message: expect.stringMatching(/no engine named 'engine-\d+' .*open it first/),
    });
  });

  it('a counter that the peer does not have is an error of the sender', async () => {
    const [a, b] = [openEngine(), openEngine({ counterEntries: 4 })];
    const bump = (counter: number): Promise<unknown> =>
      a.submit([{ op: 'bump', peer: a.connect(b.name), signals: [{ counter, value: 1, remote: true }] }])
        .done;
    await bump(3);
    expect((await errorOf(bump(4))).code).toBe('INVALID_ARGUMENT');
    expect(b.counter(3)).toBe(1);
  });
});
