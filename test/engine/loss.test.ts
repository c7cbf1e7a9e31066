import { describe, expect, it, vi } from 'vitest';
import { DecodeEngine, PrefillEngine } from '../../src/engine/index.js';
import { DualPathError } from '../../src/errors/index.js';
import type { LocalScheduler, SchedulerClient } from '../../src/scheduler/index.js';
import { decodeReads, Gate, TestCluster, tokens, type ClusterOptions } from './cluster.js';

const flows: [string, ClusterOptions][] = [
  ['PE read', { policy: 'prefill' }],
  ['DE read', decodeReads],
  ['split read', { policy: 'split' }],
];

type Role = 'prefill' | 'decode';

async function stored(cluster: TestCluster, count = 100): Promise<Uint32Array> {
  const prompt = tokens(count);
  await cluster.turn(`store ${prompt[0]}`, prompt);
  return prompt;
}

/** The engine dies without a word: its memory is out of reach, it hears and says nothing more. */
async function kill(cluster: TestCluster, role: Role, index: number): Promise<void> {
  const { engine } = cluster[role][index]!;
  cluster.control.silence(engine.name);
  await engine.traffic.close();
}

/** What a supervisor does that has noticed. */
function tellOfLoss(cluster: TestCluster, role: Role, index: number): void {
  const { name } = cluster[role][index]!.engine;
  cluster.scheduler.engineLost(name);
  for (const { engine } of cluster[role === 'prefill' ? 'decode' : 'prefill']) engine.peerLost(name);
}

/** A batch of requests of both decode engines, held up before it computes. */
async function heldBatch(options: ClusterOptions): Promise<{
  cluster: TestCluster;
  gate: Gate;
  prompts: Uint32Array[];
  ended: Promise<unknown>[];
}> {
  let gate = new Gate();
  gate.open();
  const cluster = new TestCluster({ ...options, decode: 2, maxBatches: 1, beforeBatch: () => gate.opened });
  const prompts: Uint32Array[] = [];
  for (let i = 0; i < 4; i++) prompts.push(await stored(cluster));
  const before = cluster.batches;
  const plug = (gate = new Gate());
  const plugged = cluster.turn('plug', tokens(20));
  await vi.waitFor(() => expect(cluster.batches).toBe(before + 1));
  const ended: Promise<unknown>[] = prompts.map((prompt, i) => cluster.turn(`${i}`, prompt));
  for (const end of ended) end.catch(() => undefined);
  await vi.waitFor(() => expect(cluster.prefill[0]!.engine.hits.requests).toBe(9));
  gate = new Gate();
  plug.open();
  await plugged;
  await vi.waitFor(() => expect(cluster.batches).toBe(before + 2));
  return { cluster, gate, prompts, ended };
}

async function codes(ended: readonly Promise<unknown>[]): Promise<string[]> {
  const settled = await Promise.allSettled(ended);
  return settled
    .map((one) => (one.status === 'fulfilled' ? 'done' : (one.reason as DualPathError).code))
    .sort();
}

describe.each(flows)('%s: a decode engine is lost with its requests in a batch', (_, options) => {
  it('closed: the others are tried again and end well', async () => {
    const { cluster, gate, prompts, ended } = await heldBatch(options);
    await cluster.decode[0]!.engine.close();
    gate.open();
    // Requests were shared out evenly.
    expect(await codes(ended)).toEqual(['CLOSED', 'CLOSED', 'done', 'done']);
    await cluster.expectRightBytes(...prompts);
    await cluster.expectNothingHeld();
    await cluster.close();
  });

  it('dead without a word: as soon as the loss is known', async () => {
    const { cluster, gate, prompts, ended } = await heldBatch(options);
    await kill(cluster, 'decode', 0);
    gate.open();
    tellOfLoss(cluster, 'decode', 0);
    expect(await codes(ended)).toEqual(['PEER_LOST', 'PEER_LOST', 'done', 'done']);
    await cluster.expectRightBytes(...prompts);
    await cluster.expectNothingHeld('prefill');
    await cluster.close();
  });
});

describe.each(flows)('%s: a prefill engine is lost with requests in a batch', (_, options) => {
  it('closed', async () => {
    const { cluster, gate, prompts, ended } = await heldBatch(options);
    await cluster.prefill[0]!.engine.close();
    gate.open();
    expect(await codes(ended)).toEqual(['CLOSED', 'CLOSED', 'CLOSED', 'CLOSED']);
    await cluster.expectRightBytes(...prompts);
    await cluster.expectNothingHeld();
    await cluster.close();
  });

  it('dead without a word', async () => {
    const { cluster, gate, prompts, ended } = await heldBatch(options);
    await kill(cluster, 'prefill', 0);
    tellOfLoss(cluster, 'prefill', 0);
    expect(await codes(ended)).toEqual(['PEER_LOST', 'PEER_LOST', 'PEER_LOST', 'PEER_LOST']);
    await cluster.expectRightBytes(...prompts);
    await cluster.expectNothingHeld('decode');
    gate.open();
    await cluster.close();
  });
});

describe('a prefill engine is lost', () => {
  it('what decodes already goes on to its end', async () => {
    const gate = new Gate();
    const started: string[] = [];
    await using cluster = new TestCluster({
      beforeDecode: ({ request }) => {
        started.push(request);
        return gate.opened;
      },
    });
    const prompt = tokens(100);
    const ended = cluster.turn('one', prompt, tokens(40));
    await vi.waitFor(() => expect(started).toEqual(['one']));
    await kill(cluster, 'prefill', 0);
    tellOfLoss(cluster, 'prefill', 0);
    gate.open();
    expect(await ended).toMatchObject({ storedBlocks: 8, persistError: undefined });
    await cluster.expectRightBytes(prompt);
    await cluster.expectNothingHeld('decode');
  });
});

describe.each(['prefill', 'decode'] as const)('close() of a %s engine', (role) => {
  const states: [string, ClusterOptions, number][] = [
    ['while hits are read by the prefill side', { policy: 'prefill' }, 100_000_000],
    ['while hits are read by the decode side', decodeReads, 100_000_000],
    ['right after the request is submitted', { policy: 'split' }, 0],
  ];

  it.each(states)('%s', async (_, options, readDelayNs) => {
    await using cluster = new TestCluster(options);
    const prompt = await stored(cluster);
    cluster.runtimes.prefill.setFaults({ readDelayNs });
    cluster.runtimes.decode.setFaults({ readDelayNs });
    const ended = cluster.submit('reading', prompt, new Uint32Array(), 96);
    if (readDelayNs > 0) await new Promise((resolve) => setTimeout(resolve, 20));
    await cluster[role][0]!.engine.close();
    await expect(ended).rejects.toMatchObject({ code: 'CLOSED' });
    await cluster.expectNothingHeld();
  });

  it('while the prompt is looked for, and it never comes', async () => {
    const asked: string[] = [];
    await using cluster = new TestCluster({
      prompt: (request) => {
        asked.push(request);
        return new Promise(() => undefined);
      },
    });
    const ended = cluster.turn('endless', tokens(70));
    await vi.waitFor(() => expect(asked).toHaveLength(2));
    await cluster[role][0]!.engine.close();
    await expect(ended).rejects.toMatchObject({ code: 'CLOSED' });
    await cluster.expectNothingHeld();
  });

  it('while requests wait behind a batch that its device never ends', async () => {
    const cluster = new TestCluster({ maxBatches: 1, beforeBatch: () => new Promise(() => undefined) });
    const ended = [cluster.turn('one', tokens(70)), cluster.turn('two', tokens(70))];
    const settled = codes(ended);
    await vi.waitFor(() => expect(cluster.prefill[0]!.engine.hits.requests).toBe(2));
    await cluster[role][0]!.engine.close();
    expect(await settled).toEqual(['CLOSED', 'CLOSED']);
    await cluster.close();
  });

  it('twice, and before anything has happened', async () => {
    await using cluster = new TestCluster();
    const { engine } = cluster[role][0]!;
    await Promise.all([engine.close(), engine.close()]);
    await engine.close();
  });
});

describe('close() of a decode engine with sequences', () => {
  it('one that decodes hears of it by its signal; the request has ended, finish() still gives back', async () => {
    const gate = new Gate();
    const signals: AbortSignal[] = [];
    await using cluster = new TestCluster({
      beforeDecode: ({ signal }) => {
        signals.push(signal);
        return gate.opened;
      },
    });
    const ended = cluster.turn('one', tokens(100), tokens(40));
    ended.catch(() => undefined);
    await vi.waitFor(() => expect(signals).toHaveLength(1));
    await cluster.decode[0]!.engine.close();
    await expect(ended).rejects.toMatchObject({ code: 'CLOSED' });
    expect(signals[0]!.aborted).toBe(true);
    gate.open();
    await cluster.expectNothingHeld();
  });

  it('append() and finish() of a sequence that is over', async () => {
    let append: (() => void) | undefined;
    await using cluster = new TestCluster({
      beforeDecode: async (sequence) => {
        append = () => sequence.append(tokens(1));
        expect(() => sequence.append(tokens(6))).toThrowError(/105 tokens, 104 reserved/);
      },
    });
    const { tokens: count } = await cluster.turn('one', tokens(99), tokens(5));
    expect(count).toBe(103);
    expect(append).toThrowError(expect.objectContaining({ code: 'CLOSED' }));
  });
});

describe('requests that cannot be', () => {
  it.each([
    [
      'whose prompt cannot be found',
      { prompt: () => Promise.reject(new Error('no such prompt')) },
      'INTERNAL',
    ],
    ['whose prompt is another than submitted', { prompt: () => tokens(7) }, 'INVALID_ARGUMENT'],
    ['whose first block and chunk exceed the staging', { stagingBlocks: 3 }, 'REQUEST_TOO_LARGE'],
  ] as [string, ClusterOptions, string][])('%s', async (_, options, code) => {
    await using cluster = new TestCluster(options);
    await expect(cluster.turn('one', tokens(100))).rejects.toMatchObject({ code });
    await cluster.expectNothingHeld();
  });

  it('one that fails at the prefill engine only, before the decode engine has got far', async () => {
    let calls = 0;
    await using cluster = new TestCluster({
      prompt: async (_, prompt) => {
        if (++calls % 2 === 1) throw new DualPathError('INVALID_ARGUMENT', 'not here');
        await new Promise((resolve) => setTimeout(resolve, 10));
        return prompt;
      },
    });
    await expect(cluster.turn('one', tokens(100))).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' });
    await cluster.expectNothingHeld();
  });
});

/** Assignments take their time to arrive. */
function slow(scheduler: LocalScheduler): SchedulerClient {
  return {
    submit: (request) => scheduler.submit(request),
    fetch: async (...args) => {
      const assignments = await scheduler.fetch(...args);
      await new Promise((resolve) => setTimeout(resolve, 20));
      return assignments;
    },
    complete: (...args) => scheduler.complete(...args),
    fail: (...args) => scheduler.fail(...args),
    cancel: (request) => scheduler.cancel(request),
    epoch: () => scheduler.epoch(),
  };
}

describe('the scheduler', () => {
  it('may reuse a name in a new epoch while its first use still winds up', async () => {
    const gate = new Gate();
    await using cluster = new TestCluster({
      policy: 'split',
      decode: 2,
      maxBatches: 1,
      beforeBatch: () => gate.opened,
    });
    const prompt = tokens(100);
    const first = cluster.turn('same', prompt);
    await vi.waitFor(() => expect(cluster.batches).toBe(1));
    const used = cluster.decode.findIndex(({ engine, free }) => engine.hbm.available < free.hbm);
    cluster.scheduler.engineLost(cluster.decode[used]!.engine.name);
    await expect(first).rejects.toMatchObject({ code: 'PEER_LOST' });
    const second = cluster.turn('same', prompt);
    gate.open();
    expect(await second).toMatchObject({ hitBlocks: 0, storedBlocks: 6 });
    await cluster.expectRightBytes(prompt);
    await cluster.expectNothingHeld();
  });

  it.each(['prefill', 'decode'] as const)('may be late with an assignment to a %s engine', async (late) => {
    await using cluster = new TestCluster({
      policy: 'split',
      schedulerFor: (role, scheduler) => (role === late ? slow(scheduler) : scheduler),
    });
    const prompt = tokens(100);
    await cluster.turn('one', prompt);
    expect(await cluster.turn('two', prompt)).toMatchObject({ hitBlocks: 6 });
    await cluster.expectRightBytes(prompt);
    await cluster.expectNothingHeld();
  });

  it.each([
    ['prefill', 'decode'],
    ['decode', 'prefill'],
  ] as const)('a request that fails at the %s engine before the %s engine has it', async (quick, late) => {
    let quickOnes = 0;
    await using cluster = new TestCluster({
      schedulerFor: (role, scheduler) => (role === late ? slow(scheduler) : scheduler),
      prompt: (_, prompt) => {
        if (quickOnes++ > 0) return prompt;
        throw new DualPathError('INVALID_ARGUMENT', `not at the ${quick} engine`);
      },
    });
    await expect(cluster.turn('one', tokens(100))).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' });
    const prompt = tokens(100);
    await cluster.turn('two', prompt);
    await cluster.expectRightBytes(prompt);
    await cluster.expectNothingHeld();
  });

  it('that refuses work ends batches() and sequences() with its error', async () => {
    await using cluster = new TestCluster();
    const { front, scheduler, control } = cluster;
    const prompts = { prompt: () => tokens(1), maxNewTokens: () => 1 };
    const options = { traffic: front, scheduler, control, prompts, group: 'nowhere' };
    const timeModel = { predict: () => ({ attentionS: 0, totalS: 0 }) };
    const prefill = new PrefillEngine({ ...options, stagingBlocks: 4, timeModel, quotaS: 1 });
    await expect(prefill.batches().next()).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' });
    const decode = new DecodeEngine({ ...options, hbmBlocks: 4 });
    await expect(decode.sequences().next()).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' });
    await Promise.all([prefill.close(), decode.close()]);
  });
});
