import { describe, expect, it } from 'vitest';
import { benchRing } from '../../src/bench/index.js';

describe('benchRing', () => {
  it('measures every figure on a small scale', async () => {
    const steps: string[] = [];
    const result = await benchRing({
      sampleS: 0.05,
      heapBlocks: 500_000,
      onProgress: (step) => steps.push(step),
    });
    expect(steps.length).toBeGreaterThan(3);
    expect(result.descriptorsPerS).toBeGreaterThan(100_000);
    expect(result.programSubmitUs.p50).toBeGreaterThan(0);
    // 61 layers x 512 blocks x 64 tokens x 8 bytes, copied and sent, 200 times.
    expect(result.programBytesMoved).toBe(61 * 512 * 64 * 8 * 2 * 200);
    expect(result.heapGrowthBytes).toBeLessThan(1 << 20);
  });

  it('can be interrupted', async () => {
    await expect(benchRing({ signal: AbortSignal.abort() })).rejects.toThrow();
  });
});
