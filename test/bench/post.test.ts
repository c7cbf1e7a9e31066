import { describe, expect, it } from 'vitest';
import { benchPost } from '../../src/bench/index.js';
import { callNative, native } from '../../src/binding/index.js';

describe('benchPost', () => {
  it('counts one post call and one completion for each chain', async () => {
    const steps: string[] = [];
    const result = await benchPost({ requests: 2000, samples: 3, onProgress: (step) => steps.push(step) });
    expect(result.results.map(({ chain }) => chain)).toEqual([1, 8, 64]);
    expect(result.provider).toContain('emulated');
    for (const row of result.results) {
      expect(row.requests).toBeGreaterThanOrEqual(3 * 1900);
      expect(row.requests).toBe(row.chains * row.chain);
      expect([row.postCalls, row.completions]).toEqual([row.chains, row.chains]);
      expect(row.nsPerRequest.expand).toBeGreaterThan(0);
      expect(row.totalSpreadNs.min).toBeLessThanOrEqual(row.nsPerRequest.total);
    }
    expect(steps).toHaveLength(9);
  });

  it('refuses a chain that is none', () => {
    expect(() => callNative(() => native().measurePostCost({ chain: 0, chains: 1 }))).toThrow(
      /1 to 1024 allowed/,
    );
  });

  it('can be interrupted', async () => {
    await expect(benchPost({ signal: AbortSignal.abort() })).rejects.toThrow();
  });
});
