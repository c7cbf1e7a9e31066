import { describe, expect, it } from 'vitest';
import { PrefillBatch, type BatchContext } from '../../src/engine/prefill-batch.js';
import type { PrefillRequest } from '../../src/engine/prefill-request.js';
import { DualPathError } from '../../src/errors/index.js';
import { blockLayout, loadModel } from '../../src/layout/index.js';
import type { Descriptor, Program } from '../../src/transfer/index.js';

const layout = blockLayout(loadModel('demo'), { blockTokens: 16 });
const mergedCounter = 77;
const cancelled = new DualPathError('CANCELLED', 'the program was cancelled');

interface Submitted {
  readonly descriptors: readonly Descriptor[];
  readonly finish: () => void;
  readonly fail: (error: DualPathError) => void;
}

/** A batch of one request's last chunk, on an engine whose programs end when the test says so. */
function oneChunk({ cachedTokens = 0, stageDone = Promise.resolve() } = {}): {
  batch: PrefillBatch;
  submitted: Submitted[];
  /** As many layers have been sent. */
  sent: (layers: number) => void;
} {
  const submitted: Submitted[] = [];
  let sentLayers = 0;
  const engine = {
    takeCounters: () => 0,
    counters: { giveBack: () => undefined },
    counterHandle: (counter: number) => counter,
    counter: () => sentLayers,
    slots: () => new Uint32Array(),
    submit(descriptors: readonly Descriptor[]): Program {
      let entry: Submitted | undefined;
      const done = new Promise((resolve, reject) => {
        entry = { descriptors, finish: () => resolve({ finishedUs: 5 }), fail: reject };
      });
      submitted.push(entry!);
      return { done, entry } as unknown as Program;
    },
    cancel: ({ entry }: { entry: Submitted }) => entry.fail(cancelled),
  };
  const context = {
    ...{ windowLayers: 4, layerwise: true, freeHits: false },
    traffic: { name: 'p', layout, engine, buffer: { geometry: 0 } },
    staging: { geometry: 1, tryTake: (count: number) => ({ offset: 0, count }) },
    control: { send: () => undefined },
  };
  const request = {
    ...{ name: 'r', key: '1:r', stage: 0, hitsSent: false, cachedTokens, hitBlocks: cachedTokens / 16 },
    ...{ remainingTokens: 40, tokens: new Uint32Array(cachedTokens + 40), bufferSlots: 0, decodeSlots: 0 },
    ...{ peer: 3, decode: { geometry: 2, mergedCounter, freeCounter: 78 } },
    assignment: { prefillReadBlocks: 0, decodeEngine: 'd' },
    stageDone: () => stageDone,
  };
  const packed = { totalS: 1, attentionS: 1, entries: [{ index: 0, newTokens: 40 }] };
  const batch = new PrefillBatch(
    context as unknown as BatchContext,
    [request as unknown as PrefillRequest],
    packed,
  );
  return { batch, submitted, sent: (layers) => (sentLayers = layers) };
}

const says = ({ descriptors }: Submitted): boolean =>
  descriptors.some(({ signals = [] }) => signals.some(({ counter }) => counter === mergedCounter));

describe('a batch that is given up', () => {
  it('after all of a prompt was sent: the decode engine is told so, and the chunk counts', async () => {
    const { batch, submitted, sent } = oneChunk();
    sent(layout.layers);
    batch.abort();
    while (submitted.length < 2) await new Promise(setImmediate);
    expect(submitted[1]!.descriptors).toHaveLength(1);
    expect(says(submitted[1]!)).toBe(true);
    submitted[1]!.finish();
    await batch.settled;
    expect(batch.entries[0]!.outcome).toEqual({ finishedUs: 5 });
  });

  it('before: the chunk does not count, and nothing is said', async () => {
    const { batch, submitted, sent } = oneChunk();
    sent(layout.layers - 1);
    batch.abort();
    await batch.settled;
    expect(batch.entries[0]!.outcome).toEqual({ error: cancelled });
    expect(submitted).toHaveLength(1);
  });

  it('and can no longer tell the decode engine: the chunk does not count', async () => {
    const { batch, submitted, sent } = oneChunk();
    sent(layout.layers);
    batch.abort();
    while (submitted.length < 2) await new Promise(setImmediate);
    submitted[1]!.fail(new DualPathError('PEER_LOST', 'gone'));
    await batch.settled;
    expect(batch.entries[0]!.outcome).toEqual({ error: cancelled });
  });
});

it('a chunk that was sent counts, however the decode engine’s own sends were ended', async () => {
  const { batch, submitted } = oneChunk({ cachedTokens: 32, stageDone: Promise.reject(cancelled) });
  submitted[0]!.finish();
  await batch.settled;
  expect(batch.entries[0]!.outcome).toEqual({ finishedUs: 5 });
});
