import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { arrivalTimesS } from '../../src/route-eval/arrivals.js';
import { elasticity } from '../../src/route-eval/elasticity.js';
import { policyEntries, policyOf } from '../../src/route-eval/policies.js';
import { runTask } from '../../src/route-eval/run.js';
import { Simulation, traceKeys, type SimulationTables } from '../../src/route-eval/simulation.js';
import { infiniteCacheHitRate, type RouteTrace } from '../../src/route-eval/trace.js';
import { setting, traceOf } from './support.js';

function simulate(trace: RouteTrace, policy: string, timesS: Float64Array, change = {}): SimulationTables {
  const count = trace.promptTokens.length;
  const simulation = new Simulation({ ...setting, ...change }, policyOf(policy).make(1), count, 512);
  return simulation.run({ trace, keys: traceKeys(trace), timesS });
}

const requests = fc.array(
  fc.record({
    atMs: fc.constant(0),
    ids: fc.array(fc.integer({ min: 0, max: 3 }), { minLength: 1, maxLength: 5 }),
  }),
  { minLength: 2, maxLength: 60 },
);

/** Ids that stand for their whole prefix, as those of a trace do. */
function chained(ids: readonly number[]): number[] {
  let chain = 1;
  return ids.map((id) => (chain = (chain * 4099 + id + 1) % 4294967291));
}

describe('Simulation', () => {
  it('serves one replica as a queue by hand does: first come, first served, hits of what was computed before', () => {
    fc.assert(
      fc.property(
        requests,
        fc.array(fc.integer({ min: 0, max: 3000 }), { minLength: 60, maxLength: 60 }),
        (list, gaps) => {
          const trace = traceOf(list.map(({ atMs, ids }) => ({ atMs, ids: chained(ids) })));
          let atS = 0;
          const timesS = Float64Array.from(list, (_, i) => (atS += gaps[i]! / 1000));
          const tables = simulate(trace, 'round-robin', timesS, { replicas: 1, cacheTokens: 1e6 });
          const seen = new Set<number>();
          let freeS = 0;
          for (const [i, { ids }] of list.entries()) {
            const blocks = chained(ids);
            let hits = 0;
            while (hits < blocks.length - 1 && seen.has(blocks[hits]!)) hits++;
            freeS = Math.max(freeS, timesS[i]!) + (blocks.length - hits) * 512 * setting.prefillSPerToken;
            expect(tables.hitTokens[i]).toBe(hits * 512);
            expect(tables.ttftS[i]).toBeCloseTo(freeS - timesS[i]!, 6);
            for (const block of blocks) seen.add(block);
          }
        },
      ),
    );
  });

  it('is deterministic, serves everyone, and the router expects the hits that replicas have, by every policy', () => {
    const ids = (i: number): number[] => chained([i % 2, i % 3, i % 5, i % 7]);
    const trace = traceOf(
      Array.from({ length: 400 }, (_, i) => ({ atMs: 1000 * Math.floor(i / 4), ids: ids(i) })),
    );
    for (const { name } of policyEntries) {
      const timesS = arrivalTimesS(trace, 2.2, 1);
      const tables = simulate(trace, name, timesS);
      expect(tables.wrongHits, name).toBe(0);
      expect(Math.min(...tables.ttftS), name).toBeGreaterThan(0);
      expect(simulate(trace, name, timesS).ttftS, name).toEqual(tables.ttftS);
    }
  });

  it('tells policies loads as old as it says', () => {
    const trace = traceOf(
      Array.from({ length: 200 }, (_, i) => ({ atMs: 100 * i, ids: chained([i, 1, 2]) })),
    );
    const task = { policy: 'least-loaded', qps: 1.5, seed: 3, setting, warmUpRequests: 10, copies: 1 };
    const exact = runTask(trace, task);
    const stale = (ageS: number, countsOwn: boolean): number =>
      runTask(trace, { ...task, setting: { ...setting, stale: { ageS, countsOwn } } }).ttftP90S;
    expect(stale(0, false)).toBeCloseTo(exact.ttftP90S, 6);
    expect(stale(5, false)).toBeGreaterThan(1.2 * exact.ttftP90S);
    expect(stale(5, true)).toBeLessThan(stale(5, false));
  });

  it('runs copies with blocks of their own, for larger clusters', () => {
    const trace = traceOf(
      Array.from({ length: 100 }, (_, i) => ({ atMs: 100 * i, ids: chained([0, i, 1]) })),
    );
    const task = {
      policy: 'dualmap',
      qps: 3,
      seed: 1,
      setting: { ...setting, replicas: 6 },
      warmUpRequests: 0,
      copies: 2,
    };
    const { hitRate, wrongHits } = runTask(trace, task);
    expect(wrongHits).toBe(0);
    expect(hitRate).toBeGreaterThan(0.1);
    expect(hitRate).toBeLessThanOrEqual(infiniteCacheHitRate(trace, 0));
  });

  it('grows and shrinks, and loses no request by it', () => {
    const trace = traceOf(
      Array.from({ length: 4000 }, (_, i) => ({ atMs: 1000 * i, ids: chained([i % 50, i, 1]) })),
    );
    const [result] = elasticity(trace, { policies: ['dualmap'], qps: 3.6, setting, seeds: 1 });
    expect(result!.overloaded.mean).toBeLessThan(0.9);
    expect(result!.seedsRecovered).toBe(1);
    expect(result!.scaledUp.mean).toBeGreaterThan(0.95);
    expect(result!.scaledDown.mean).toBeGreaterThan(0.9);
  });
});

describe('arrivalTimesS', () => {
  it('spreads the requests of a bin within it, keeps their order and reaches the rate', () => {
    const trace = traceOf(
      Array.from({ length: 90 }, (_, i) => ({ atMs: 3000 * Math.floor(i / 9), ids: [i] })),
    );
    const timesS = arrivalTimesS(trace, 2, 5);
    expect(timesS).toEqual(timesS.slice().sort());
    expect(new Set(timesS).size).toBe(90);
    expect(timesS[0]).toBe(0);
    expect(timesS.at(-1)).toBeCloseTo(45, 6);
    expect(arrivalTimesS(trace, 2, 6)).not.toEqual(timesS);
    expect(arrivalTimesS(trace, 2, 5)).toEqual(timesS);
  });
});

describe('infiniteCacheHitRate', () => {
  it('counts leading blocks seen before, never a whole prompt', () => {
    const trace = traceOf([
      { atMs: 0, ids: [1, 2] },
      { atMs: 1, ids: [1, 2] },
      { atMs: 2, ids: [1, 2, 3], tokens: 1600 },
    ]);
    expect(infiniteCacheHitRate(trace, 0)).toBeCloseTo((512 + 1024) / (1024 + 1024 + 1600), 9);
    expect(infiniteCacheHitRate(trace, 1)).toBeCloseTo((512 + 1024) / (1024 + 1600), 9);
  });
});
