import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  attentionPairs,
  LinearTimeModel,
  packBatch,
  type BatchEntry,
  type BatchLimits,
  type PrefillWork,
} from '../../src/scheduler/index.js';
import { expectError } from './support.js';

/** One second of attention a pair, so a quota counts pairs. */
const model = new LinearTimeModel({
  baseS: 5,
  perNewTokenS: 1,
  perAttentionTokenS: 0,
  perAttentionPairS: 1,
});
const limits: BatchLimits = { quotaS: 1000, maxBatchBlocks: 100, blockTokens: 4, maxRequests: 10 };
const work = (cachedTokens: number, remainingTokens: number): PrefillWork => ({
  request: `c${cachedTokens}r${remainingTokens}`,
  cachedTokens,
  remainingTokens,
});

describe('packBatch', () => {
  it('takes whole requests in order while the quota holds', () => {
    const batch = packBatch([work(8, 3), work(0, 5), work(4, 1)], model, limits);
    expect(batch.entries).toEqual([
      { index: 0, newTokens: 3 },
      { index: 1, newTokens: 5 },
      { index: 2, newTokens: 1 },
    ]);
    expect(batch.attentionS).toBe(30 + 15 + 5);
    expect(batch.totalS).toBe(50 + 5 + 9);
  });

  it('cuts the first that would not fit at a block and lets nothing overtake it', () => {
    // 30 pairs of the first leave 50: 8 tokens after 0 cached are 36 pairs, 12 would be 78.
    const batch = packBatch([work(8, 3), work(0, 30), work(0, 1)], model, { ...limits, quotaS: 80 });
    expect(batch.entries).toEqual([
      { index: 0, newTokens: 3 },
      { index: 1, newTokens: 8 },
    ]);
    expect(batch.attentionS).toBe(66);
  });

  it('ends chunks where a block ends, also after a partial block', () => {
    const batch = packBatch([work(6, 30)], model, { ...limits, quotaS: 60 });
    expect(batch.entries).toEqual([{ index: 0, newTokens: 6 }]);
  });

  it('lets the head go on to the end of its block over the quota', () => {
    const small = { ...limits, quotaS: 1 };
    expect(packBatch([work(40, 9), work(0, 1)], model, small).entries).toEqual([{ index: 0, newTokens: 4 }]);
    expect(packBatch([work(42, 9)], model, small).entries).toEqual([{ index: 0, newTokens: 2 }]);
    expect(packBatch([work(40, 3)], model, small).entries).toEqual([{ index: 0, newTokens: 3 }]);
  });

  it('counts the staging of cached and new tokens of every entry', () => {
    const tight = { ...limits, maxBatchBlocks: 6 };
    const batch = packBatch([work(8, 1), work(4, 20), work(0, 1)], model, tight);
    expect(batch.entries).toEqual([
      { index: 0, newTokens: 1 },
      { index: 1, newTokens: 8 },
    ]);
    expect(packBatch([work(8, 1), work(12, 1)], model, tight).entries).toHaveLength(1);
    expectError(
      () => packBatch([work(24, 1)], model, tight),
      'REQUEST_TOO_LARGE',
      /request c24r1 needs 7 blocks/,
      /the limit is 6/,
      /raise maxBatchBlocks/,
    );
  });

  it('takes no more than maxRequests, and nothing from an empty queue', () => {
    const queue = Array.from({ length: 9 }, () => work(0, 1));
    expect(packBatch(queue, model, { ...limits, maxRequests: 4 }).entries).toHaveLength(4);
    expect(packBatch([], model, limits)).toEqual({ entries: [], attentionS: 0, totalS: 0 });
  });

  it('refuses impossible work and limits', () => {
    expectError(() => packBatch([work(0, 0)], model, limits), 'INVALID_ARGUMENT', /remainingTokens/);
    expectError(() => packBatch([], model, { ...limits, quotaS: 0 }), 'INVALID_ARGUMENT', /quotaS is 0/);
    expectError(() => packBatch([], model, { ...limits, maxRequests: 0 }), 'INVALID_ARGUMENT', /maxRequests/);
  });
});

/** The rules, token by token: no search, no closed form. */
function packPlainly(queue: readonly PrefillWork[], some: BatchLimits): BatchEntry[] {
  const entries: BatchEntry[] = [];
  let pairs = 0;
  let blocks = 0;
  for (const [index, { cachedTokens, remainingTokens }] of queue.entries()) {
    if (entries.length === some.maxRequests) break;
    let best = 0;
    for (let newTokens = 1; newTokens <= remainingTokens; newTokens++) {
      const endsBlock = (cachedTokens + newTokens) % some.blockTokens === 0;
      if (!endsBlock && newTokens !== remainingTokens) continue;
      const staging = blocks + Math.ceil((cachedTokens + newTokens) / some.blockTokens);
      const overQuota = pairs + attentionPairs({ cachedTokens, newTokens }) > some.quotaS;
      const mustProgress = index === 0 && best === 0;
      if (staging <= some.maxBatchBlocks && (!overQuota || mustProgress)) best = newTokens;
    }
    if (best === 0) break;
    entries.push({ index, newTokens: best });
    pairs += attentionPairs({ cachedTokens, newTokens: best });
    blocks += Math.ceil((cachedTokens + best) / some.blockTokens);
    if (best < remainingTokens) break;
  }
  return entries;
}

const anyLimits: fc.Arbitrary<BatchLimits> = fc.record({
  quotaS: fc.integer({ min: 1, max: 6000 }),
  maxBatchBlocks: fc.integer({ min: 1, max: 80 }),
  blockTokens: fc.integer({ min: 1, max: 9 }),
  maxRequests: fc.integer({ min: 1, max: 6 }),
});
const anyQueue = fc.array(
  fc.tuple(fc.nat(60), fc.integer({ min: 1, max: 60 })).map(([cached, rest]) => work(cached, rest)),
  { maxLength: 8 },
);

describe('packBatch, any queue and limits', () => {
  it('equals the rules applied token by token', () => {
    let chunks = 0;
    let refused = 0;
    fc.assert(
      fc.property(anyQueue, anyLimits, (queue, some) => {
        const plain = packPlainly(queue, some);
        if (queue.length > 0 && plain.length === 0) {
          refused++;
          return expectError(() => packBatch(queue, model, some), 'REQUEST_TOO_LARGE');
        }
        const batch = packBatch(queue, model, some);
        expect(batch.entries).toEqual(plain);
        const parts = batch.entries.map(({ index, newTokens }) => ({
          cachedTokens: queue[index]?.cachedTokens ?? 0,
          newTokens,
        }));
        const { attentionS, totalS } = batch;
        expect({ attentionS, totalS }).toEqual(model.predict(parts));
        chunks += plain.filter(
          ({ index, newTokens }) => newTokens < (queue[index]?.remainingTokens ?? 0),
        ).length;
      }),
      { numRuns: 1000, seed: 20260226 },
    );
    expect(chunks).toBeGreaterThan(200); // the cases reach what they are meant to test
    expect(refused).toBeGreaterThan(10);
  });

  it('prefills every queue to its end in FIFO order', () => {
    fc.assert(
      fc.property(anyQueue, anyLimits, (all, some) => {
        const roomy = { ...some, maxBatchBlocks: 130 }; // the longest request is 120 tokens
        let queue: readonly PrefillWork[] = all;
        let left = all.reduce((sum, { remainingTokens }) => sum + remainingTokens, 0);
        while (queue.length > 0) {
          const { entries } = packBatch(queue, model, roomy);
          const done = entries.reduce((sum, { newTokens }) => sum + newTokens, 0);
          expect(done).toBeGreaterThan(0);
          left -= done;
          queue = queue.flatMap((some, index) => {
            const newTokens = entries[index]?.newTokens ?? 0;
            const remainingTokens = some.remainingTokens - newTokens;
            return remainingTokens === 0
              ? []
              : [{ ...some, cachedTokens: some.cachedTokens + newTokens, remainingTokens }];
          });
        }
        expect(left).toBe(0);
      }),
      { numRuns: 200, seed: 20260226 },
    );
  });
});
