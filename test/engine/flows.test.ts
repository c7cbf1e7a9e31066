import { describe, expect, it, vi } from 'vitest';
import { decodeReads, Gate, joined, TestCluster, tokens, type ClusterOptions } from './cluster.js';
import { fromJavaScript } from './devices.js';

const oneLayer = {
  name: 'one-layer',
  revision: '1',
  dtype: 'emulated',
  layers: 1,
  groups: [
    {
      name: 'kv',
      layers: [0],
      planes: [{ name: 'kv', bytesPerToken: 40 }],
      windowTokens: 0,
      sharding: 'sharded' as const,
    },
  ],
};

interface Lengths {
  readonly prompt: number;
  readonly reply: number;
  /** What the second turn's prompt adds to the first turn. */
  readonly more: number;
}

/** Two turns of a session: hits of the second are the blocks that the first left, and every byte is right. */
async function twoTurns(cluster: TestCluster, { prompt, reply, more }: Lengths): Promise<void> {
  const { blockTokens } = cluster.layout;
  const first = tokens(prompt);
  const answer = tokens(reply);
  const one = await cluster.turn('one', first, answer);
  const withKv = prompt + Math.max(reply - 1, 0);
  expect(one).toEqual({
    foundBlocks: 0,
    tokens: withKv,
    hitBlocks: 0,
    storedBlocks: Math.floor(withKv / blockTokens),
    persistError: undefined,
  });
  const second = joined(first, answer, tokens(more));
  const answer2 = tokens(20);
  const two = await cluster.turn('two', second, answer2);
  expect(two).toMatchObject({ foundBlocks: one.storedBlocks, hitBlocks: one.storedBlocks });
  await cluster.expectRightBytes(joined(second, answer2));
  await cluster.expectNothingHeld();
  expect(cluster.deviceErrors).toEqual([]);
}

async function run(options: ClusterOptions, lengths: Partial<Lengths> = {}): Promise<TestCluster> {
  const cluster = new TestCluster(options);
  try {
    await twoTurns(cluster, { prompt: 100, reply: 40, more: 50, ...lengths });
  } finally {
    await cluster.close();
  }
  return cluster;
}

const flows: Record<string, ClusterOptions> = {
  'PE read': { policy: 'prefill' },
  'DE read': decodeReads,
  'split read': { policy: 'split' },
  'DE read without layerwise prefill': { ...decodeReads, layerwise: false },
  Basic: { policy: 'prefill', layerwise: false },
  'split without layerwise prefill': { policy: 'split', layerwise: false },
  Oracle: { policy: 'none', freeHits: true },
};

describe.each(['demo', 'demo-mla', 'one-layer'])('%s', (name) => {
  const model = name === 'one-layer' ? oneLayer : name;

  it.each(Object.entries(flows))('%s moves every byte', async (_, flow) => {
    const cluster = await run({ model, ...flow });
    expect(cluster.checkedBytes('decode')).toBeGreaterThan(0);
    if (flow.freeHits !== true) expect(cluster.checkedBytes('prefill')).toBeGreaterThan(0);
  });

  it.each(Object.entries(flows))('%s in chunks, through little staging', async (_, flow) => {
    // 48 tokens at once of 100 and then of 130: earlier chunks' KV comes back through the DE each time.
    const options = { model, ...flow, quotaS: 48, stagingBlocks: 18, maxBatches: 1 };
    const cluster = await run(options, { more: 130 });
    expect(cluster.batches).toBeGreaterThanOrEqual(5);
  });

  it.each([1, 2, 4, 64])('a staging window of %i layers', async (windowLayers) => {
    for (const flow of [{ policy: 'prefill' }, decodeReads, { policy: 'split' }] as const) {
      for (const maxBatches of [1, 2]) await run({ model, ...flow, windowLayers, maxBatches, quotaS: 64 });
    }
  });
});

describe('which side reads', () => {
  const sides = (cluster: TestCluster): boolean[] =>
    [cluster.prefill, cluster.decode].map((nodes) =>
      nodes.some(({ engine }) => engine.traffic.engine.statistics().readBytes > 0),
    );

  it('prefill: the prefill side', async () => {
    expect(sides(await run({ policy: 'prefill' }))).toEqual([true, false]);
  });

  it('shorter-queue: the decode side where PE buffer is short', async () => {
    expect(sides(await run(decodeReads))).toEqual([false, true]);
  });

  it('split: both at once', async () => {
    expect(sides(await run({ policy: 'split' }))).toEqual([true, true]);
  });

  it('none: nobody, with hits all the same', async () => {
    expect(sides(await run({ policy: 'none', freeHits: true }))).toEqual([false, false]);
  });
});

describe('lengths', () => {
  it.each([1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65])('a prompt of %i tokens', async (prompt) => {
    await using cluster = new TestCluster({ policy: 'split', model: 'demo-mla' });
    for (const reply of [0, 1, 2, 17, 70]) await twoTurns(cluster, { prompt, reply, more: 1 });
  });

  it('a prompt that is stored whole computes its last block', async () => {
    await using cluster = new TestCluster({ policy: 'split' });
    const prompt = tokens(64);
    await cluster.turn('one', prompt);
    const again = await cluster.turn('two', prompt);
    expect(again).toMatchObject({ foundBlocks: 3, hitBlocks: 3, storedBlocks: 4 });
    await cluster.expectRightBytes(prompt);
    await cluster.expectNothingHeld();
  });

  it('hits that the scheduler was told of beyond the last token are not used', async () => {
    await using cluster = new TestCluster({ policy: 'split' });
    const prompt = tokens(64);
    await cluster.turn('one', prompt);
    const again = await cluster.submit('two', prompt, new Uint32Array(), 64);
    expect(again.hitBlocks).toBe(3);
    expect(cluster.prefill[0]!.engine.hits.lostBlocks).toBe(0);
    await cluster.expectRightBytes(prompt);
    await cluster.expectNothingHeld();
  });
});

describe('several requests', () => {
  it.each([{ policy: 'prefill' }, decodeReads, { policy: 'split' }] as const)(
    '%o: over several DEs',
    async (flow) => {
      await using cluster = new TestCluster({ bufferBlocks: 200, ...flow, decode: 3, model: 'demo-mla' });
      const prompts = Array.from({ length: 6 }, (_, index) => tokens(40 + 17 * index));
      const replies = prompts.map(() => tokens(30));
      await Promise.all(prompts.map((prompt, i) => cluster.turn(`one ${i}`, prompt, replies[i])));
      const second = prompts.map((prompt, i) => joined(prompt, replies[i]!, tokens(20)));
      const results = await Promise.all(second.map((prompt, i) => cluster.turn(`two ${i}`, prompt)));
      for (const [i, { hitBlocks }] of results.entries()) {
        expect(hitBlocks).toBe(Math.floor((prompts[i]!.length + 29) / 16));
      }
      await cluster.expectRightBytes(...second);
      await cluster.expectNothingHeld();
    },
  );

  it('one batch holds requests of several DEs', async () => {
    const sizes: number[] = [];
    const gate = new Gate();
    await using cluster = new TestCluster({
      policy: 'round-robin',
      decode: 3,
      maxBatches: 1,
      beforeBatch: async ({ entries }) => {
        sizes.push(entries.length);
        await gate.opened;
      },
    });
    const prompts = Array.from({ length: 7 }, () => tokens(50));
    const ended = Promise.all(prompts.map((prompt, i) => cluster.turn(`${i}`, prompt)));
    // The first is computed when all others wait.
    await vi.waitFor(() => expect(cluster.prefill[0]!.engine.hits.requests).toBe(7));
    gate.open();
    await ended;
    expect(sizes).toEqual([1, 6]);
    await cluster.expectRightBytes(...prompts);
    await cluster.expectNothingHeld();
  });
});

describe('computed from JavaScript', () => {
  it.each(Object.entries(flows))('%s', async (_, flow) => {
    const compute = fromJavaScript(flow.freeHits ?? false);
    const cluster = await run({ ...flow, compute, quotaS: 32, maxBatches: 1, windowLayers: 2 });
    expect(cluster.batches).toBe(6);
  });
});
