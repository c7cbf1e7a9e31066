import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { attentionPairs, LinearTimeModel } from '../../src/scheduler/index.js';
import { expectError } from './support.js';

const model = new LinearTimeModel({
  baseS: 0.01,
  perNewTokenS: 2e-5,
  perAttentionTokenS: 1e-6,
  perAttentionPairS: 1e-9,
});

describe('attentionPairs', () => {
  it('counts, for every new token, the tokens up to and with itself', () => {
    fc.assert(
      fc.property(fc.nat(50), fc.nat(50), (cachedTokens, newTokens) => {
        let pairs = 0;
        for (let i = 1; i <= newTokens; i++) pairs += cachedTokens + i;
        expect(attentionPairs({ cachedTokens, newTokens })).toBe(pairs);
      }),
      { seed: 20260226 },
    );
  });
});

describe('LinearTimeModel', () => {
  it('adds up its terms', () => {
    const time = model.predict([
      { cachedTokens: 1000, newTokens: 99 },
      { cachedTokens: 0, newTokens: 1 },
    ]);
    expect(time.attentionS).toBeCloseTo(100e-6 + (99 * 1050 + 1) * 1e-9, 15);
    expect(time.totalS).toBeCloseTo(time.attentionS + 0.01 + 100 * 2e-5, 15);
    expect(model.predict([])).toEqual({ attentionS: 0, totalS: 0 });
  });

  it('grows with every part and with both fields of a part', () => {
    const part = fc.record({ cachedTokens: fc.nat(100_000), newTokens: fc.nat(10_000) });
    fc.assert(
      fc.property(
        fc.array(part, { maxLength: 5 }),
        part,
        fc.integer({ min: 1, max: 9 }),
        (rest, some, more) => {
          const time = model.predict([...rest, some]);
          const longer = model.predict([...rest, { ...some, newTokens: some.newTokens + more }]);
          const later = model.predict([...rest, { ...some, cachedTokens: some.cachedTokens + more }]);
          expect(longer.attentionS).toBeGreaterThan(time.attentionS);
          expect(longer.totalS).toBeGreaterThan(time.totalS);
          expect(later.attentionS).toBeGreaterThanOrEqual(time.attentionS);
          expect(time.attentionS).toBeGreaterThanOrEqual(model.predict(rest).attentionS);
          expect(time.totalS).toBeGreaterThanOrEqual(time.attentionS);
        },
      ),
      { seed: 20260226 },
    );
  });

  it('refuses impossible coefficients and counts', () => {
    const coefficients = { ...model.coefficients, perNewTokenS: -1 };
    expectError(() => new LinearTimeModel(coefficients), 'INVALID_ARGUMENT', /perNewTokenS is -1/);
    expectError(() => model.predict([{ cachedTokens: 1, newTokens: -1 }]), 'INVALID_ARGUMENT', /newTokens/);
    expectError(
      () => model.predict([{ cachedTokens: 0.5, newTokens: 1 }]),
      'INVALID_ARGUMENT',
      /cachedTokens/,
    );
  });
});
