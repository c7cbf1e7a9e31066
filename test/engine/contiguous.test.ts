/** Engines without page tables that compute in JavaScript: rows() and sampled(). */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { LocalControl } from '../../src/control/index.js';
import { DecodeEngine, PrefillEngine, type SequenceResult } from '../../src/engine/index.js';
import { blockLayout, loadModel } from '../../src/layout/index.js';
import { LinearTimeModel, LocalScheduler, type EngineCapacity } from '../../src/scheduler/index.js';
import { BlockStore } from '../../src/storage/index.js';
import { TrafficManager } from '../../src/traffic/index.js';
import { errorOf } from '../transfer/support.js';

const directory = mkdtempSync(join(tmpdir(), 'dualpath-contiguous-'));
afterAll(() => rmSync(directory, { recursive: true, force: true }));

const layout = blockLayout(loadModel('demo'), { blockTokens: 8 });
const rowBytes = layout.maxLayerBlockBytes / layout.blockTokens;
const blocks = 32;
const prompt = Uint32Array.from({ length: 61 }, (_, i) => i);

/** What the test's model computes as the KV of a token in a layer. */
const kvOf = (layer: number, token: number): number => (layer * 37 + token * 11 + 1) % 256;

function fill(rows: Uint8Array, layer: number, begin: number, end: number): void {
  for (let t = begin; t < end; t++) rows.fill(kvOf(layer, t), t * rowBytes, (t + 1) * rowBytes);
}

function expectRows(rows: Uint8Array, layer: number, end: number): void {
  const expected = new Uint8Array(end * rowBytes);
  fill(expected, layer, 0, end);
  expect(Buffer.compare(rows.subarray(0, end * rowBytes), expected)).toBe(0);
}

class Cluster {
  readonly scheduler: LocalScheduler;
  readonly prefill: PrefillEngine;
  readonly decode: DecodeEngine;
  readonly #requests = new Map<
    string,
    { resolve(result: SequenceResult): void; reject(error: Error): void }
  >();
  readonly #loops: Promise<void>[];
  chunks: number[][] = [];
  /** What sampled() of a chunk that is not the last threw. */
  early: unknown;

  constructor(policy: 'prefill' | 'split', quotaS: number) {
    const store = BlockStore.open({ path: join(directory, `store-${policy}-${quotaS}`), layout });
    const capacity = (role: 'prefill' | 'decode'): EngineCapacity => ({
      ...{ engine: role, node: role, group: role, role, bufferBlocks: blocks, readRateBytesPerS: 1e9 },
      hbmBlocks: role === 'decode' ? blocks : 0,
    });
    this.scheduler = new LocalScheduler(
      {
        ...{ engines: [capacity('prefill'), capacity('decode')], policy, blockTokens: layout.blockTokens },
        ...{ blockBytes: store.file.fileBytes, decodeSpareBlocks: 1, maxWaiting: 10, seed: 1 },
      },
      ({ request, error }) => this.#requests.get(request)?.reject(error),
    );
    const control = new LocalControl();
    const prompts = { prompt: () => prompt, maxNewTokens: () => 8 };
    const common = (name: string) => ({
      traffic: new TrafficManager({ name, network: directory, layout, store, bufferBlocks: blocks }),
      ...{ scheduler: this.scheduler, group: name, control, prompts, contiguous: true },
    });
    const rates = { baseS: 0, perNewTokenS: 0, perAttentionTokenS: 1, perAttentionPairS: 0 };
    const timeModel = new LinearTimeModel(rates);
    this.prefill = new PrefillEngine({ ...common('prefill'), stagingBlocks: blocks, timeModel, quotaS });
    this.decode = new DecodeEngine({ ...common('decode'), hbmBlocks: blocks });
    this.#loops = [this.#prefill(), this.#decode()];
  }

  async #prefill(): Promise<void> {
    for await (const batch of this.prefill.batches()) {
      const [entry] = batch.entries;
      const { cachedTokens, newTokens, last } = entry!;
      this.chunks.push([cachedTokens, newTokens]);
      for (const step of batch.layers()) {
        const { layer } = step;
        await step.ready();
        const rows = batch.rows(entry!, layer);
        expect(rows).toHaveLength((cachedTokens + newTokens) * rowBytes);
        expectRows(rows, layer, cachedTokens);
        fill(rows, layer, cachedTokens, cachedTokens + newTokens);
        step.done();
      }
      if (last) batch.sampled(entry!, Uint32Array.of(4711, 12));
      else this.early = await errorOf(() => batch.sampled(entry!, Uint32Array.of(1)));
    }
  }

  async #decode(): Promise<void> {
    for await (const sequence of this.decode.sequences()) {
      expect(await sequence.sampled()).toEqual(Uint32Array.of(4711, 12));
      for (let layer = 0; layer < layout.layers; layer++)
        expectRows(sequence.rows(layer), layer, prompt.length);
      this.#requests.get(sequence.request)!.resolve(await sequence.finish());
    }
  }

  async turn(request: string, hitTokens: number): Promise<SequenceResult> {
    const over = new Promise<SequenceResult>((resolve, reject) =>
      this.#requests.set(request, { resolve, reject }),
    );
    await this.scheduler.submit({ request, promptTokens: prompt.length, hitTokens, maxNewTokens: 8 });
    return await over;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.scheduler.close();
    await Promise.all([this.prefill.close(), this.decode.close()]);
    await Promise.all(this.#loops);
  }
}

describe('an engine without page tables', () => {
  it.each(['prefill', 'split'] as const)(
    'sees its KV in rows, hits by %s and chunks alike',
    async (policy) => {
      await using cluster = new Cluster(policy, 24);
      expect(await cluster.turn('one', 0)).toMatchObject({ hitBlocks: 0, storedBlocks: 7 });
      expect(cluster.chunks).toEqual([
        [0, 24],
        [24, 24],
        [48, 13],
      ]);
      expect(cluster.early).toMatchObject({ code: 'INVALID_ARGUMENT' });
      expect(await cluster.turn('two', 56)).toMatchObject({ hitBlocks: 7 });
      expect(cluster.chunks.at(-1)).toEqual([56, 5]);
    },
  );
});
