import { describe, expect, it, vi } from 'vitest';
import { DualPathError } from '../../src/errors/index.js';
import { decodeReads, Gate, TestCluster, tokens, type ClusterOptions } from './cluster.js';

const readDelayNs = 100_000_000;
const cancelled = { code: 'CANCELLED' };

const flows: [string, ClusterOptions][] = [
  ['PE read', { policy: 'prefill' }],
  ['DE read', decodeReads],
  ['split read', { policy: 'split' }],
];

/** Requests that are under way at an engine, ended ones not counted. */
const running = (cluster: TestCluster): number => cluster.scheduler.statistics().running;

/** Stores a prompt and more, so that a later turn of it has hits to read. */
async function stored(cluster: TestCluster, count = 100): Promise<Uint32Array> {
  const prompt = tokens(count);
  await cluster.turn(`store ${prompt[0]}`, prompt);
  return prompt;
}

describe('cancel', () => {
  it('a request that waits for admission', async () => {
    const gate = new Gate();
    await using cluster = new TestCluster({ hbmBlocks: 5, beforeDecode: () => gate.opened });
    const prompt = tokens(70);
    const first = cluster.turn('first', prompt);
    await vi.waitFor(() => expect(running(cluster)).toBe(1));
    const second = cluster.turn('second', tokens(70));
    await vi.waitFor(() => expect(cluster.scheduler.statistics().waiting).toBe(1));
    cluster.scheduler.cancel('second');
    await expect(second).rejects.toMatchObject(cancelled);
    gate.open();
    await first;
    await cluster.expectRightBytes(prompt);
    await cluster.expectNothingHeld();
  });

  it('in the turn of the event loop that admits it: the engines have not been given it yet', async () => {
    await using cluster = new TestCluster();
    const ended = cluster.submit('quick', tokens(70), new Uint32Array(), 0);
    cluster.scheduler.cancel('quick');
    await expect(ended).rejects.toMatchObject(cancelled);
    // Neither engine runs it: a later request gets all of both.
    const prompt = tokens(70);
    await cluster.turn('later', prompt);
    expect(cluster.prefill[0]!.engine.hits.requests).toBe(1);
    await cluster.expectRightBytes(prompt);
    await cluster.expectNothingHeld();
  });

  it('while its prompt is looked for', async () => {
    const asked: string[] = [];
    await using cluster = new TestCluster({
      prompt: (request) => {
        asked.push(request);
        return new Promise(() => undefined);
      },
    });
    const ended = cluster.turn('endless', tokens(70));
    await vi.waitFor(() => expect(asked).toHaveLength(2));
    cluster.scheduler.cancel('endless');
    await expect(ended).rejects.toMatchObject(cancelled);
    await cluster.expectNothingHeld();
  });

  it.each(flows)('while its hits are read: %s', async (_, options) => {
    await using cluster = new TestCluster({ bufferBlocks: 8, ...options });
    const prompt = await stored(cluster);
    cluster.runtimes.prefill.setFaults({ readDelayNs });
    cluster.runtimes.decode.setFaults({ readDelayNs });
    const ended = cluster.turn('reading', prompt);
    await vi.waitFor(() => expect(running(cluster)).toBe(1));
    await new Promise((resolve) => setTimeout(resolve, 20));
    cluster.scheduler.cancel('reading');
    await expect(ended).rejects.toMatchObject(cancelled);
    // The reads end in memory that is still the request's; the next one waits for it.
    const next = tokens(100);
    await cluster.turn('next', next);
    await cluster.expectRightBytes(prompt, next);
    await cluster.expectNothingHeld();
  });

  it('while it waits behind a batch', async () => {
    const gate = new Gate();
    await using cluster = new TestCluster({ maxBatches: 1, beforeBatch: () => gate.opened });
    const prompt = tokens(70);
    const first = cluster.turn('first', prompt);
    await vi.waitFor(() => expect(cluster.batches).toBe(1));
    const second = cluster.turn('second', tokens(70));
    await vi.waitFor(() => expect(cluster.prefill[0]!.engine.hits.requests).toBe(2));
    cluster.scheduler.cancel('second');
    await expect(second).rejects.toMatchObject(cancelled);
    gate.open();
    await first;
    expect(cluster.batches).toBe(1);
    await cluster.expectRightBytes(prompt);
    await cluster.expectNothingHeld();
  });

  it.each(flows)('in a batch, whose others do not notice: %s', async (_, options) => {
    let gate = new Gate();
    gate.open();
    await using cluster = new TestCluster({
      ...options,
      decode: 2,
      maxBatches: 1,
      beforeBatch: () => gate.opened,
    });
    const prompts = [await stored(cluster), await stored(cluster), await stored(cluster)];
    const before = cluster.batches;
    // While one batch is held up the others gather for the next.
    const plug = (gate = new Gate());
    const plugged = cluster.turn('plug', tokens(20));
    await vi.waitFor(() => expect(cluster.batches).toBe(before + 1));
    const ended = prompts.map((prompt, i) => cluster.turn(`${i}`, prompt));
    await vi.waitFor(() => expect(cluster.prefill[0]!.engine.hits.requests).toBe(7));
    const held = (gate = new Gate());
    plug.open();
    await plugged;
    await vi.waitFor(() => expect(cluster.batches).toBe(before + 2));
    // The decode engines serve it: each request has a program that waits for its whole prompt, and another.
    const inFlight = ({ engine, free }: (typeof cluster.decode)[0]): number =>
      free.programs - engine.traffic.engine.room.programs;
    await vi.waitFor(() =>
      expect(cluster.decode.reduce((sum, de) => sum + inFlight(de), 0)).toBeGreaterThan(5),
    );
    cluster.scheduler.cancel('1');
    await expect(ended[1]).rejects.toMatchObject(cancelled);
    await new Promise((resolve) => setTimeout(resolve, 20));
    // Its decode engine keeps the memory that the batch is going to write, until the prefill engine's word.
    const buffers = cluster.decode.map(({ engine, free }) => free.buffer - engine.traffic.buffer.available);
    expect(buffers.reduce((sum, count) => sum + count, 0)).toBe(3 * 7);
    held.open();
    expect(await ended[0]).toMatchObject({ hitBlocks: 6 });
    expect(await ended[2]).toMatchObject({ hitBlocks: 6 });
    expect(cluster.batches).toBe(before + 2);
    await cluster.expectRightBytes(...prompts);
    await cluster.expectNothingHeld();
  });

  it('while it decodes: the signal says so, finish() gives everything back', async () => {
    const gate = new Gate();
    const signals: AbortSignal[] = [];
    await using cluster = new TestCluster({
      beforeDecode: ({ signal }) => {
        signals.push(signal);
        return gate.opened;
      },
    });
    const prompt = tokens(70);
    const ended = cluster.turn('decoding', prompt, tokens(40));
    await vi.waitFor(() => expect(signals).toHaveLength(1));
    cluster.scheduler.cancel('decoding');
    await expect(ended).rejects.toMatchObject(cancelled);
    expect(signals[0]!.aborted).toBe(true);
    expect(signals[0]!.reason).toMatchObject(cancelled);
    gate.open();
    await cluster.expectNothingHeld();
    await cluster.expectRightBytes(prompt);
  });

  it('while its prompt is stored: finish() waits for the writes that are under way', async () => {
    let over = false;
    await using cluster = new TestCluster({
      writeBytesPerS: 1e6,
      beforeDecode: async (sequence) => {
        cluster.scheduler.cancel('storing');
        const { traffic } = cluster.decode[0]!.engine;
        const { programs } = cluster.decode[0]!.free;
        expect(traffic.engine.room.programs).toBe(programs - 1);
        await sequence.finish();
        expect(traffic.engine.room.programs).toBe(programs);
        over = true;
      },
    });
    await expect(cluster.turn('storing', tokens(160))).rejects.toMatchObject(cancelled);
    await vi.waitFor(() => expect(over).toBe(true));
    await cluster.expectNothingHeld();
  });

  it('a request that has ended: nothing happens', async () => {
    await using cluster = new TestCluster();
    const prompt = tokens(70);
    await cluster.turn('one', prompt);
    cluster.scheduler.cancel('one');
    await cluster.turn('two', tokens(70));
    await cluster.expectNothingHeld();
  });

  it('at one engine only: the other and the scheduler hear of it', async () => {
    for (const side of ['prefill', 'decode'] as const) {
      const gate = new Gate();
      await using cluster = new TestCluster({ maxBatches: 1, beforeBatch: () => gate.opened });
      const first = cluster.turn('first', tokens(70));
      await vi.waitFor(() => expect(cluster.batches).toBe(1));
      const second = cluster.turn('second', tokens(70));
      await vi.waitFor(() => expect(cluster.prefill[0]!.engine.hits.requests).toBe(2));
      const { engine } = cluster[side][0]!;
      engine.cancel('second', new DualPathError('CANCELLED', 'the user went away'));
      await expect(second).rejects.toMatchObject(cancelled);
      gate.open();
      await first;
      await cluster.expectNothingHeld();
    }
  });
});
