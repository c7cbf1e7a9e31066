import { describe, expect, it } from 'vitest';
import { benchScheduler } from '../../src/bench/index.js';

describe('benchScheduler', () => {
  it('measures every size, and the memory of what waits', () => {
    const steps: string[] = [];
    const result = benchScheduler({
      engines: [8, 60],
      sampleS: 0.02,
      waitingRequests: 20_000,
      onProgress: (step) => steps.push(step),
    });
    expect(steps).toEqual(['8 engines', '60 engines', 'memory of waiting requests']);
    expect(result.sizes.map(({ engines, groups }) => [engines, groups])).toEqual([
      [8, 2],
      [60, 8],
    ]);
    for (const size of result.sizes) {
      expect(size.assignments).toBeGreaterThan(100); // it did not run dry
      expect(size.assignmentSamplesPerS).toHaveLength(5);
      expect(size.fetchP50Us).toBeLessThanOrEqual(size.fetchP99Us);
    }
    expect(result.assignmentsPerS).toBe(
      Math.min(...result.sizes.map(({ assignmentsPerS }) => assignmentsPerS)),
    );
    // Counted, not timed: holds on any machine.
    expect(result.bytesPerWaitingRequest).toBeGreaterThan(50);
    expect(result.bytesPerWaitingRequest).toBeLessThan(500);
  });
});
