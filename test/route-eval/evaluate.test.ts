import { describe, expect, it } from 'vitest';
import { evaluate, sections, type EvaluationOptions } from '../../src/route-eval/index.js';
import { setting, traceOf } from './support.js';

const trace = traceOf(
  Array.from({ length: 300 }, (_, i) => ({ atMs: 1000 * i, ids: [1, 2 + (i % 40), 100 + i, 500 + i] })),
);
const options: EvaluationOptions = {
  setting,
  warmUpRequests: 30,
  seeds: 3,
  grid: [0.5, 1.5, 3, 6],
  policies: ['dualmap', 'late-lane', 'least-loaded', 'min-ttft', 'max-hit'],
  sections,
  scalingReplicas: [3, 6],
  threads: 1,
};

describe('evaluate', () => {
  it('has every section, seed by seed comparisons and the published figures beside', async () => {
    const result = await evaluate(trace, options);
    expect(result).toMatchObject({ emulated: true, complete: true, seeds: 3, gridQps: [0.5, 1.5, 3, 6] });
    expect(result.policies.map(({ name }) => name)).toEqual(options.policies);
    for (const { points, goodputQps } of result.policies) {
      expect(points.map(({ qps }) => qps)).toEqual(options.grid);
      expect(points[0]!.attainment.mean).toBeGreaterThan(0.9);
      expect(points.at(-1)!.attainment.mean).toBeLessThan(0.5);
      expect(goodputQps.low).toBeLessThanOrEqual(goodputQps.mean);
      for (const { hitRate, wrongHits } of points) {
        expect(hitRate.mean).toBeLessThanOrEqual(result.hitRateBound);
        expect(wrongHits).toBe(0);
      }
    }
    const compared = result.goodputOverBestBaseline.filter(({ policy }) => policy === 'dualmap');
    expect(compared.map(({ against }) => against)).toEqual(['weak', 'strong', 'any']);
    expect(compared[0]).toMatchObject({ baseline: 'least-loaded', ratio: { seeds: 3 } });
    expect(result.capacityOverBestBaseline).toHaveLength(2 * 3 * 4);
    expect(result.ttftAtDualmapGoodput?.policies).toHaveLength(5);
    expect(result.dualmapKeys.reduce((sum, { share }) => sum + share, 0)).toBeCloseTo(1, 9);
    expect(result.stale.map(({ view }) => view)).toHaveLength(2);
    expect(result.queueOrder).toHaveLength(1);
    expect(result.elasticity.map(({ policy }) => policy)).toContain('late-lane');
    expect(result.scaling.map(({ replicas }) => replicas)).toContain(6);
    expect(result.published.source).toContain('arXiv 2602.06502');
  });

  it('keeps whole seeds of what was done when it is interrupted', async () => {
    const controller = new AbortController();
    const perSeed = 5 * 4;
    const result = await evaluate(trace, {
      ...options,
      signal: controller.signal,
      onSection: () => (done) => {
        if (done === perSeed + 3) controller.abort();
      },
    });
    expect(result.complete).toBe(false);
    expect(result.policies).toHaveLength(5);
    for (const { goodputQps } of result.policies) expect([1, 2]).toContain(goodputQps.seeds);
    expect(result.stale.every(({ policies }) => policies.length === 0)).toBe(true);
    expect(result.elasticity).toEqual([]);
  });
});
