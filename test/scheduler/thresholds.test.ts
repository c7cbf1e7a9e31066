import { describe, expect, it } from 'vitest';
import { alphaTokens, betaTokens, LinearTimeModel } from '../../src/scheduler/index.js';
import { expectError } from './support.js';

describe('thresholds', () => {
  it('alpha: what a link reads in 3 s', () => {
    expect(alphaTokens(50e9, 48_068)).toBe(3_120_579);
    expect(alphaTokens(1000, 10, 0.5)).toBe(50);
    expectError(() => alphaTokens(0, 1), 'INVALID_ARGUMENT', /readRateBytesPerS is 0/);
  });

  it('beta: the most tokens a forward computes in 5 s', () => {
    const model = new LinearTimeModel({
      baseS: 1,
      perNewTokenS: 0.5,
      perAttentionTokenS: 0,
      perAttentionPairS: 1e-3,
    });
    const beta = betaTokens(model, 1000);
    const totalS = (newTokens: number): number => model.predict([{ cachedTokens: 1000, newTokens }]).totalS;
    expect(totalS(beta)).toBeLessThanOrEqual(5);
    expect(totalS(beta + 1)).toBeGreaterThan(5);
    expect(betaTokens(model, 0, 0.5)).toBe(0);
    expectError(() => betaTokens(model, -1), 'INVALID_ARGUMENT', /cachedTokens is -1/);
  });
});
