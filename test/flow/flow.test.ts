import { describe, expect, it } from 'vitest';
import {
  announceFreeStaging,
  BatchCounters,
  bufferToStaging,
  decodeBufferToStaging,
  hitParts,
  stagingToDecodeBuffer,
} from '../../src/flow/index.js';
import { RangeAllocator, type TransferEngine, type Wait } from '../../src/transfer/index.js';

/** The part of an engine that counters come from. */
function counting(): TransferEngine {
  const counters = new RangeAllocator('counters', 1000);
  counters.take(100);
  const engine = { counters, takeCounters: (count: number) => counters.take(count) };
  return engine as unknown as TransferEngine;
}

/** Counter and value that a step waits for; undefined when it does not wait. */
function waitOf(wait: Wait, step: number): { counter: number; value: number } | undefined {
  if (step < (wait.skipSteps ?? 0)) return undefined;
  return {
    counter: wait.counter + step * (wait.counterStep ?? 0),
    value: wait.value + step * (wait.valueStep ?? 0),
  };
}

describe('hitParts', () => {
  const split = { hitBlocks: 5, prefillReadBlocks: 3, blockTokens: 16 };

  it.each([
    ['nothing there', { ...split, hitBlocks: 0, prefillReadBlocks: 0, cachedTokens: 0 }, 0, undefined],
    ['hits on the prefill side', { ...split, hitBlocks: 3, cachedTokens: 48 }, 3, undefined],
    ['hits on the decode side', { ...split, prefillReadBlocks: 0, cachedTokens: 80 }, 0, [0, 5, 0, 80]],
    ['hits on both sides', { ...split, cachedTokens: 80 }, 3, [3, 2, 48, 80]],
    ['a chunk computed before', { ...split, cachedTokens: 112 }, 3, [3, 4, 48, 112]],
    ['a chunk that ended within a block', { ...split, cachedTokens: 100 }, 3, [3, 4, 48, 100]],
    ['chunks and no hits', { ...split, hitBlocks: 0, cachedTokens: 32 }, 0, [0, 2, 0, 32]],
    ["the prefill side's part came short", { ...split, hitBlocks: 2, cachedTokens: 32 }, 2, undefined],
  ] as const)('%s', (_, options, prefillBlocks, segment) => {
    const segments = segment === undefined ? [] : [segment];
    expect(hitParts(options)).toEqual({
      prefillBlocks,
      decodeSegments: segments.map(([firstBlock, blocks, tokenBegin, tokenEnd]) => ({
        firstBlock,
        blocks,
        tokenBegin,
        tokenEnd,
      })),
    });
  });
});

describe('BatchCounters', () => {
  it('takes counters of its own for every layer and request, and gives them back', () => {
    const engine = counting();
    const batch = new BatchCounters(engine, 8, 4, true, 3);
    const all = [
      ...Array.from({ length: 8 }, (_, l) => batch.arrive + l),
      ...Array.from({ length: 8 }, (_, l) => batch.free + l),
      batch.computed,
      ...[0, 1, 2].map((r) => batch.sent(r)),
    ];
    expect(new Set(all).size).toBe(20);
    expect(engine.counters.available).toBe(880);
    batch.release();
    expect(engine.counters.available).toBe(900);
  });

  it('layer l uses the staging of layer l - window again when all pieces of that have left', () => {
    const batch = new BatchCounters(counting(), 8, 3, true);
    batch.piecesOut = 5;
    const wait = batch.stagingFree();
    expect([0, 1, 2].map((layer) => waitOf(wait, layer))).toEqual([undefined, undefined, undefined]);
    for (let layer = 3; layer < 8; layer++) {
      expect(waitOf(wait, layer)).toEqual({ counter: batch.free + layer - 3, value: 5 });
    }
  });

  it('layerwise: a layer is computed when its pieces are there, and sent when it is computed', () => {
    const batch = new BatchCounters(counting(), 4, 2, true);
    batch.piecesIn = 3;
    for (let layer = 0; layer < 4; layer++) {
      expect(waitOf(batch.arrived(), layer)).toEqual({ counter: batch.arrive + layer, value: 3 });
      expect(waitOf(batch.isComputed(), layer)).toEqual({ counter: batch.computed, value: layer + 1 });
    }
  });

  it('otherwise everything arrives, then everything is computed, then everything is sent', () => {
    const batch = new BatchCounters(counting(), 4, 4, false);
    batch.piecesIn = 3;
    for (let layer = 0; layer < 4; layer++) {
      expect(waitOf(batch.arrived(), layer)).toEqual({ counter: batch.arrive, value: 12 });
      expect(waitOf(batch.isComputed(), layer)).toEqual({ counter: batch.computed, value: 4 });
    }
  });

  it('a window of more layers than there are is all layers', () => {
    const batch = new BatchCounters(counting(), 4, 9, true);
    expect(batch.windowLayers).toBe(4);
    expect(waitOf(batch.stagingFree(), 3)).toBeUndefined();
  });
});

describe('staging handed between the engines', () => {
  const stage = {
    kind: 'stage' as const,
    request: '1:r',
    stage: 2,
    last: false,
    hitBlocks: 4,
    geometry: 7,
    slots: new Uint32Array(6),
    segments: [],
    arriveCounter: 500,
    arriveStep: 1 as const,
    windowLayers: 3,
  };
  const segment = { firstBlock: 2, blocks: 3, tokenBegin: 32, tokenEnd: 80 };
  const places = { peer: 1, decodeBuffer: 2, decodeSlots: 30, stagingSlots: 40, computeFrom: 80 };

  it('the DE waits for just the announcements that the PE makes, whatever came before', () => {
    const layers = 8;
    const freeBase = stage.stage * layers;
    const options = { ...places, layers, freeCounter: 9 };
    const { waits, signals } = decodeBufferToStaging(stage, segment, options);
    const batch = new BatchCounters(counting(), layers, 3, true);
    const bump = announceFreeStaging(batch, { peer: 4, freeCounter: 9, stage: 2 });
    expect(bump!.steps).toBe(5);
    expect(bump!.signals).toEqual([{ counter: 9, value: freeBase, ordered: true, remote: true }]);
    const last = waitOf(waits![0]!, layers - 1);
    expect(last).toEqual({ counter: 9, value: freeBase + bump!.steps! });
    expect(waitOf(waits![0]!, 2)).toBeUndefined();
    expect(waitOf(waits![0]!, 3)).toEqual({ counter: 9, value: freeBase + 1 });
    expect(signals).toEqual([{ counter: 500, counterStep: 1, value: 1, remote: true }]);
  });

  it('what comes late from a stage that was given up releases nothing of the next', () => {
    const layers = 8;
    const batch = new BatchCounters(counting(), layers, 3, true);
    const late = announceFreeStaging(batch, { peer: 4, freeCounter: 9, stage: stage.stage - 1 })!;
    const { waits } = decodeBufferToStaging(stage, segment, { ...places, layers, freeCounter: 9 });
    const first = waitOf(waits![0]!, batch.windowLayers)!;
    expect(first.value).toBeGreaterThan(late.signals![0]!.value + late.steps!);
  });

  it('with staging for all layers nothing is announced and nothing waited for', () => {
    const options = { ...places, layers: 2, freeCounter: 9 };
    const { waits } = decodeBufferToStaging(stage, segment, options);
    expect([0, 1].map((step) => waitOf(waits![0]!, step))).toEqual([undefined, undefined]);
    const batch = new BatchCounters(counting(), 2, 3, true);
    expect(announceFreeStaging(batch, { peer: 4, freeCounter: 9, stage: 2 })).toBeUndefined();
  });

  it('a piece in raises arrive, a piece out raises free and the request’s own count', () => {
    const batch = new BatchCounters(counting(), 4, 2, true, 1);
    const into = bufferToStaging(batch, {
      buffer: 0,
      staging: 1,
      bufferSlots: 10,
      stagingSlots: 20,
      blocks: 3,
      blockTokens: 16,
      computeFrom: 48,
    });
    expect(into).toMatchObject({ tokenBegin: 0, tokenEnd: 48, windowEnd: 48, layers: 4 });
    expect(into.signals).toEqual([{ counter: batch.arrive, counterStep: 1, value: 1 }]);
    const out = stagingToDecodeBuffer(batch, {
      peer: 0,
      staging: 1,
      decodeBuffer: 2,
      stagingSlots: 23,
      decodeSlots: 33,
      firstBlock: 3,
      blocks: 2,
      tokenBegin: 48,
      tokenEnd: 70,
      sent: batch.sent(0),
      windowEnd: 0,
    });
    expect(out.signals).toEqual([
      { counter: batch.free, counterStep: 1, value: 1 },
      { counter: batch.sent(0), value: 1 },
    ]);
  });
});
