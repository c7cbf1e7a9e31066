import { describe, expect, it } from 'vitest';
import { checkAgainstReplay } from '../../src/simulator/replay-check.js';

/**
 * Rates that a busy machine keeps; bounds wider than those of the whole comparison (scripts/simulator-check.mjs), which
 * wants a quiet one.
 */
describe('the simulation and the real data path', () => {
  it.each(['basic', 'dualpath', 'split'] as const)('agree on %s', async (mode) => {
    const { throughputRatio, ttftRatio } = await checkAgainstReplay({
      mode,
      prefillNodes: 1,
      decodeNodes: 1,
      sessions: 6,
      turns: 5,
      snicBytesPerS: 12e6,
    });
    expect(throughputRatio).toBeGreaterThan(0.85);
    expect(throughputRatio).toBeLessThan(1.3);
    expect(ttftRatio).toBeGreaterThan(0.65);
    expect(ttftRatio).toBeLessThan(1.25);
  });
});
