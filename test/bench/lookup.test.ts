import { existsSync, readdirSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { benchLookup } from '../../src/bench/index.js';
import { scratchDirectory } from '../traffic/support.js';

describe('benchLookup', () => {
  it('measures every case on a small scale and leaves nothing behind', async () => {
    const directory = scratchDirectory();
    const steps: string[] = [];
    const onProgress = (step: string): number => steps.push(step);
    const results = await benchLookup({ blocks: [128], samples: 8, directory, onProgress });
    expect(steps.length).toBeGreaterThan(6);
    expect(readdirSync(directory)).toEqual([]);
    const stored = { cold: 128, warm: 128, branch: 64, 'branch again': 64, miss: 0, 'miss again': 0 };
    expect(results.map((r) => [r.case, r.storedBlocks])).toEqual(
      ['cold', 'warm', 'warm', 'branch', 'branch again', 'miss', 'miss again'].map((name) => [
        name,
        stored[name as keyof typeof stored],
      ]),
    );
    for (const result of results) {
      expect(result).toMatchObject({ blocks: 128, blockTokens: 64 });
      expect(result.totalUs.p50).toBeGreaterThan(0);
      expect(result.totalUs.p99).toBeGreaterThanOrEqual(result.totalUs.p50);
      expect(result.copyUs).toBeGreaterThan(0);
      // Only what was never seen is hashed.
      const unseen = ['cold', 'branch', 'miss'].includes(result.case);
      expect(result.hashUs > 0).toBe(unseen);
      expect(result.javascriptCpuUs === null).toBe(unseen);
    }
  });

  it('can be interrupted', async () => {
    const directory = scratchDirectory();
    await expect(benchLookup({ signal: AbortSignal.abort(), directory })).rejects.toThrow();
    expect(existsSync(directory) && readdirSync(directory)).toEqual([]);
  });
});
