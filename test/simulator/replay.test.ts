import { describe, expect, it } from 'vitest';
import { checkAgainstReplay } from '../../src/simulator/replay-check.js';

/**
 * Rates that a busy machine keeps; bounds wider than those of `dualpath simulate check`, which wants a quiet one: what
 * the real turn spends outside of TTFT on a busy machine is missing in TTFT, since agents are a closed loop.
 */
describe('the simulation and the real data path', () => {
  it.each(['basic', 'dualpath', 'split'] as const)('agree on %s', { timeout: 60_000 }, async (mode) => {
    const { throughputRatio, ttftRatio } = await checkAgainstReplay({
      mode,
      prefillNodes: 1,
      decodeNodes: 1,
      sessions: 3,
      turns: 3,
      snicBytesPerS: 6e6,
    });
    expect(throughputRatio).toBeGreaterThan(0.8);
    expect(throughputRatio).toBeLessThan(1.6);
    expect(ttftRatio).toBeGreaterThan(0.5);
    expect(ttftRatio).toBeLessThan(1.6);
  });
});
