import fc from 'fast-check';
import { expect, it } from 'vitest';
import type { ModelDescription } from '../../src/layout/index.js';
import { joined, TestCluster, tokens, type ClusterOptions } from './cluster.js';
import { fromJavaScript, onDevice } from './devices.js';

const flows: ClusterOptions[] = [
  { policy: 'prefill' },
  { policy: 'shorter-queue' },
  { policy: 'shorter-queue', prefillBufferBlocks: 1 },
  { policy: 'split' },
  { policy: 'round-robin' },
  { policy: 'none', freeHits: true },
];

const model = (layers: number, windowTokens: number): ModelDescription => ({
  name: 'property',
  revision: '1',
  dtype: 'emulated',
  layers,
  groups: [
    {
      name: 'full',
      layers: Array.from({ length: layers }, (_, layer) => layer),
      planes: [{ name: 'latent', bytesPerToken: 13 }],
      windowTokens: 0,
      sharding: 'replicated',
    },
    {
      name: 'sliding',
      layers: [layers - 1],
      planes: [{ name: 'kv', bytesPerToken: 24 }],
      windowTokens,
      sharding: 'replicated',
    },
  ],
});

const cluster = fc.record({
  flow: fc.constantFrom(...flows),
  layers: fc.constantFrom(1, 3, 6),
  windowTokens: fc.constantFrom(1, 7, 40),
  blockTokens: fc.constantFrom(8, 16),
  prefill: fc.integer({ min: 1, max: 2 }),
  decode: fc.integer({ min: 1, max: 2 }),
  layerwise: fc.boolean(),
  windowLayers: fc.integer({ min: 1, max: 7 }),
  maxBatches: fc.integer({ min: 1, max: 3 }),
  maxRequestsPerBatch: fc.integer({ min: 1, max: 4 }),
  quotaS: fc.constantFrom(1, 20, 64, 1e9),
  stagingBlocks: fc.integer({ min: 40, max: 80 }),
  fromJavaScript: fc.boolean(),
});

const turn = fc.record({ added: fc.integer({ min: 1, max: 60 }), reply: fc.integer({ min: 0, max: 40 }) });
const sessions = fc.array(fc.array(turn, { minLength: 1, maxLength: 3 }), { minLength: 1, maxLength: 4 });

it('any cluster, any sessions: every byte right, hits as expected, nothing left over', async () => {
  await fc.assert(
    fc.asyncProperty(cluster, sessions, async (options, plan) => {
      const { flow, layers, windowTokens, fromJavaScript: scripted, ...rest } = options;
      const { freeHits = false } = flow;
      await using tested = new TestCluster({
        ...rest,
        ...flow,
        model: model(layers, windowTokens),
        compute: scripted ? fromJavaScript(freeHits) : onDevice(freeHits),
      });
      const conversations = await Promise.all(plan.map((turns, i) => runSession(tested, `${i}`, turns)));
      await tested.expectRightBytes(...conversations);
      await tested.expectNothingHeld();
      expect(tested.deviceErrors).toEqual([]);
    }),
    { numRuns: 30, seed: 20_240_601 },
  );
});

async function runSession(
  tested: TestCluster,
  name: string,
  turns: readonly { readonly added: number; readonly reply: number }[],
): Promise<Uint32Array> {
  const { blockTokens } = tested.layout;
  let conversation: Uint32Array = new Uint32Array();
  let withKv = 0;
  for (const [index, { added, reply }] of turns.entries()) {
    const prompt = joined(conversation, tokens(added));
    const answer = tokens(reply);
    const result = await tested.turn(`${name}/${index}`, prompt, answer);
    const stored = Math.floor(withKv / blockTokens);
    const usable = Math.floor((prompt.length - 1) / blockTokens);
    withKv = prompt.length + Math.max(reply - 1, 0);
    expect(result).toEqual({
      foundBlocks: Math.min(stored, usable),
      hitBlocks: Math.min(stored, usable),
      tokens: withKv,
      storedBlocks: Math.floor(withKv / blockTokens),
      persistError: undefined,
    });
    conversation = joined(prompt, answer);
  }
  return conversation;
}
