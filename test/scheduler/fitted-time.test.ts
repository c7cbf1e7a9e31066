import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  FittedTime,
  FittedTimeModel,
  LinearTimeModel,
  packBatch,
  type ProfilePoint,
} from '../../src/scheduler/index.js';
import { expectError } from './support.js';

const points: fc.Arbitrary<ProfilePoint[]> = fc
  .array(fc.record({ flops: fc.nat(50), seconds: fc.integer({ min: 1, max: 50 }) }), {
    minLength: 2,
    maxLength: 20,
  })
  .filter((profile) => new Set(profile.map(({ flops }) => flops)).size > 1);

describe('FittedTime', () => {
  it('never falls, whatever the profile', () => {
    fc.assert(
      fc.property(
        points,
        fc.array(fc.double({ min: 0, max: 200, noNaN: true }), { minLength: 2 }),
        (profile, at) => {
          const fit = new FittedTime(profile);
          const seconds = at.sort((a, b) => a - b).map((flops) => fit.seconds(flops));
          for (let i = 1; i < seconds.length; i++)
            expect(seconds[i]).toBeGreaterThanOrEqual(seconds[i - 1]! - 1e-9);
          expect(fit.seconds(1e9)).toBeGreaterThan(fit.seconds(1e6)); // nothing large is free
        },
      ),
      { numRuns: 300, seed: 20260226 },
    );
  });

  it('meets points that rise, and says so', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 2, maxLength: 20 }), (steps) => {
        let seconds = 0;
        const profile = steps.map((step, i) => ({ flops: 10 * i, seconds: (seconds += step) }));
        const fit = new FittedTime(profile);
        for (const { flops, seconds: measured } of profile)
          expect(fit.seconds(flops)).toBeCloseTo(measured, 9);
        expect(fit.quality).toMatchObject({ points: steps.length, maxRelativeError: 0 });
        expect(fit.quality.rSquared).toBeCloseTo(1, 9);
      }),
      { numRuns: 100, seed: 20260226 },
    );
  });

  it('reports the error of a profile that no rising curve meets', () => {
    const { quality } = new FittedTime([
      { flops: 1, seconds: 1 },
      { flops: 2, seconds: 3 },
      { flops: 3, seconds: 1 },
      { flops: 4, seconds: 4 },
    ]);
    expect(quality.maxRelativeError).toBeCloseTo(5 / 3, 9); // (3 + 1) / 2 pooled at 2.5, so 8/3 at 3 FLOPs, where 1 was measured
    expect(quality.rSquared).toBeLessThan(0.9);
  });

  it('finds a noisy line again, between the points and beyond them', () => {
    const line = (flops: number): number => 0.01 + 2e-3 * flops;
    const profile = Array.from({ length: 200 }, (_, i) => ({
      flops: 5 * i,
      seconds: line(5 * i) * (1 + 0.05 * Math.sin(i * 12.9898)),
    }));
    const fit = new FittedTime(profile);
    for (const flops of [3, 252, 777, 1500])
      expect(Math.abs(fit.seconds(flops) / line(flops) - 1)).toBeLessThan(0.1);
    expect(fit.quality.rSquared).toBeGreaterThan(0.99);
  });

  it.each([
    [[], /0 points/],
    [
      [
        { flops: 1, seconds: 1 },
        { flops: 1, seconds: 2 },
      ],
      /fewer than 2 different FLOP counts/,
    ],
    [[{ flops: -1, seconds: 1 }], /flops of a profile point is -1/],
    [[{ flops: 1, seconds: 0 }], /seconds of a profile point is 0/],
  ] as const)('refuses %j', (profile, pattern) => {
    expectError(() => new FittedTime(profile), 'INVALID_ARGUMENT', pattern);
  });
});

describe('FittedTimeModel', () => {
  const truth = new LinearTimeModel({
    baseS: 0.01,
    perNewTokenS: 2e-5,
    perAttentionTokenS: 1e-5,
    perAttentionPairS: 1e-9,
  });
  const flops = { perNewToken: 2e4, perAttentionToken: 1e4, perAttentionPair: 1 };
  const profile = (which: 'attentionS' | 'totalS'): ProfilePoint[] =>
    [0, 1, 4, 16, 64, 256].flatMap((blocks) =>
      [1, 64, 512, 4096].map((newTokens) => {
        const part = { cachedTokens: 64 * blocks, newTokens };
        const pairs = newTokens * (part.cachedTokens + (newTokens + 1) / 2);
        const attention = flops.perAttentionToken * newTokens + flops.perAttentionPair * pairs;
        const all = attention + (which === 'totalS' ? flops.perNewToken * newTokens : 0);
        return { flops: all, seconds: truth.predict([part])[which] };
      }),
    );

  it('predicts forwards that were not profiled, and packs batches as the truth does', () => {
    const model = new FittedTimeModel(flops, { attention: profile('attentionS'), total: profile('totalS') });
    expect(model.attention.quality.rSquared).toBeGreaterThan(0.999);
    const batch = [
      { cachedTokens: 3000, newTokens: 300 },
      { cachedTokens: 0, newTokens: 1000 },
    ];
    const predicted = model.predict(batch);
    expect(predicted.attentionS).toBeCloseTo(truth.predict(batch).attentionS, 3);
    expect(predicted.totalS).toBeCloseTo(truth.predict(batch).totalS, 2);
    expect(model.predict([])).toEqual({ attentionS: 0, totalS: 0 });
    const queue = Array.from({ length: 9 }, (_, i) => ({
      request: `r${i}`,
      cachedTokens: 640 * i,
      remainingTokens: 700,
    }));
    const limits = { quotaS: 0.03, maxBatchBlocks: 10_000, blockTokens: 64, maxRequests: 64 };
    expect(packBatch(queue, model, limits).entries).toEqual(packBatch(queue, truth, limits).entries);
  });
});
