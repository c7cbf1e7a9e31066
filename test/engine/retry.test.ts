import { describe, expect, it, vi } from 'vitest';
import type { PrefillBatch } from '../../src/engine/index.js';
import { decodeReads, Gate, joined, TestCluster, tokens, type ClusterOptions } from './cluster.js';
import { fromJavaScript, onDevice } from './devices.js';

const flows: [string, ClusterOptions][] = [
  ['PE read', { policy: 'prefill' }],
  ['DE read', decodeReads],
  ['split read', { policy: 'split' }],
];

/** Two turns of two sessions side by side, in chunks; what the tries of their batches do is the options' affair. */
async function sessions(cluster: TestCluster): Promise<void> {
  const prompts = [tokens(100), tokens(70)];
  const replies = [tokens(20), tokens(20)];
  await Promise.all(prompts.map((prompt, i) => cluster.turn(`one ${i}`, prompt, replies[i])));
  const second = prompts.map((prompt, i) => joined(prompt, replies[i]!, tokens(60)));
  const turns = await Promise.all(second.map((prompt, i) => cluster.turn(`two ${i}`, prompt)));
  expect(turns.map(({ hitBlocks }) => hitBlocks)).toEqual([7, 5]);
  await cluster.expectRightBytes(...second);
  await cluster.expectNothingHeld();
}

describe.each(flows)('%s: a batch that is given up is tried again', (_, options) => {
  it('before it computes anything', async () => {
    const given = new Set<string>();
    await using cluster = new TestCluster({
      ...options,
      quotaS: 64,
      beforeBatch: async (batch) => {
        const name = batch.entries
          .map(({ request, cachedTokens }) => `${request.name}@${cachedTokens}`)
          .join();
        if (given.has(name)) return;
        given.add(name);
        batch.abort();
      },
    });
    await sessions(cluster);
    expect(given.size).toBeGreaterThan(2);
  });

  it('while its device computes', async () => {
    const compute = onDevice(false, 0.001);
    let batches = 0;
    await using cluster = new TestCluster({
      ...options,
      windowLayers: 2,
      compute: async (engine, gpu, batch) => {
        await compute(engine, gpu, batch);
        if (++batches % 2 === 0) return;
        await vi.waitFor(() => {
          if (gpu.engine.counter(batch.counters.computed) < 3 && !batch.givenUp) throw new Error('not yet');
        });
        batch.abort();
      },
    });
    await sessions(cluster);
    expect(batches).toBeGreaterThan(3);
  });

  it('when its engine leaves the loop over the layers', async () => {
    const compute = fromJavaScript(false);
    const given = new Set<string>();
    await using cluster = new TestCluster({
      ...options,
      windowLayers: 2,
      compute: async (engine, gpu, batch) => {
        const name = batch.entries.map(({ request }) => request.name).join();
        if (given.has(name)) return await compute(engine, gpu, batch);
        given.add(name);
        for (const layer of batch.layers()) {
          await layer.ready();
          if (layer.layer === 1) break;
          // Wrong KV: what a batch that is given up has sent must not count.
          layer.done();
        }
        expect(batch.givenUp).toBe(true);
      },
    });
    await sessions(cluster);
    expect(cluster.deviceErrors).toEqual([]);
  });
});

describe('a batch that is given up', () => {
  it('again and again: the request ends', async () => {
    await using cluster = new TestCluster({ beforeBatch: async (batch) => batch.abort() });
    await expect(cluster.turn('doomed', tokens(50))).rejects.toMatchObject({ code: 'CANCELLED' });
    expect(cluster.batches).toBe(4);
    await cluster.expectNothingHeld();
  });

  it('with the last chunk: the prompt is copied and stored once all the same', async () => {
    let given = false;
    await using cluster = new TestCluster({
      beforeBatch: async (batch) => {
        if (!given) batch.abort();
        given = true;
      },
    });
    const prompt = tokens(50);
    await cluster.turn('one', prompt);
    await cluster.expectRightBytes(prompt);
    const { layout, decode } = cluster;
    const { copyBytes, writeBlocks, writeSkippedBlocks } = decode[0]!.engine.traffic.engine.statistics();
    expect(copyBytes).toBe((50 / layout.blockTokens) * layout.fullBlockBytes);
    expect([writeBlocks, writeSkippedBlocks]).toEqual([3, 0]);
  });

  it('is not handed out', async () => {
    const gate = new Gate();
    await using cluster = new TestCluster({ decode: 2, maxBatches: 1, beforeLoop: gate.opened });
    const ended = [cluster.turn('one', tokens(50)), cluster.turn('two', tokens(50))];
    const settled = Promise.allSettled(ended);
    await vi.waitFor(() => expect(cluster.prefill[0]!.engine.hits.requests).toBe(2));
    // The batch has one of them; it is given up with that one's decode engine, and then the other is tried.
    for (const { engine } of cluster.decode) await engine.close();
    await settled;
    gate.open();
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(cluster.batches).toBe(0);
    await cluster.expectNothingHeld();
  });

  it('keeps the staging that its device uses; a new try takes other slots', async () => {
    const gate = new Gate();
    const taken: PrefillBatch[] = [];
    await using cluster = new TestCluster({
      beforeBatch: (batch) => {
        taken.push(batch);
        return gate.opened;
      },
    });
    const { staging } = cluster.prefill[0]!.engine;
    const first = cluster.turn('first', tokens(20));
    await vi.waitFor(() => expect(taken).toHaveLength(1));
    taken[0]!.abort();
    await vi.waitFor(() => expect(taken).toHaveLength(2));
    expect(staging.available).toBe(staging.slots - 4);
    gate.open();
    await first;
    await cluster.expectNothingHeld();
  });
});

describe('layers()', () => {
  async function oneBatch(use: (batch: PrefillBatch) => Promise<void>): Promise<unknown[]> {
    let used = false;
    await using cluster = new TestCluster({
      compute: async (engine, gpu, batch) => {
        if (used) return await onDevice(false)(engine, gpu, batch);
        used = true;
        await use(batch);
      },
    });
    const prompt = tokens(50);
    await cluster.turn('one', prompt);
    await cluster.expectRightBytes(prompt);
    await cluster.expectNothingHeld();
    return cluster.deviceErrors;
  }

  it('refuses done() before ready(), and the batch is given up', async () => {
    const errors = await oneBatch(async (batch) => {
      for (const layer of batch.layers()) layer.done();
    });
    expect(errors).toMatchObject([{ code: 'INVALID_ARGUMENT' }]);
  });

  it('refuses done() out of order', async () => {
    const errors = await oneBatch(async (batch) => {
      const waiting = [];
      for (const layer of batch.layers()) {
        await layer.ready();
        waiting.push(layer);
        if (layer.layer === 1) waiting[1]!.done();
      }
    });
    expect(errors).toMatchObject([{ code: 'INVALID_ARGUMENT', details: { layer: 1, next_layer: 0 } }]);
  });

  it('refuses a second call', async () => {
    const errors = await oneBatch(async (batch) => {
      const first = batch.layers();
      first.next();
      try {
        batch.layers().next();
      } finally {
        first.return();
      }
    });
    expect(errors).toMatchObject([{ code: 'INVALID_ARGUMENT' }]);
  });

  it('rejects ready() of a batch that is given up', async () => {
    const errors = await oneBatch(async (batch) => {
      for (const layer of batch.layers()) {
        if (layer.layer === 2) batch.abort();
        await layer.ready();
        if (layer.layer < 2) layer.done();
      }
    });
    expect(errors).toMatchObject([{ code: 'CANCELLED' }]);
  });

  it('keeps the staging until done(), also of a batch that is given up meanwhile', async () => {
    const errors = await oneBatch(async (batch) => {
      let released = false;
      void batch.finished.then(() => {
        released = true;
      });
      for (const layer of batch.layers()) {
        await layer.ready();
        batch.abort();
        await batch.settled;
        await new Promise((resolve) => setTimeout(resolve, 20));
        expect(released).toBe(false);
        layer.done();
      }
    });
    expect(errors).toMatchObject([{ code: 'CANCELLED' }]);
  });
});
