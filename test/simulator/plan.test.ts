import { describe, expect, it } from 'vitest';
import { hardwareOf } from '../../src/simulator/hardware.js';
import { modelCostOf } from '../../src/simulator/model-cost.js';
import { planReport } from '../../src/simulator/plan-report.js';
import { divisions, planCluster } from '../../src/simulator/plan.js';
import { reportHtml } from '../../src/report/index.js';
import { dataSetWorkload, scriptOf } from '../../src/simulator/workload.js';

const options = {
  nodes: 6,
  hardware: hardwareOf('hopper'),
  model: modelCostOf('ds-v3.2-660b'),
  workload: dataSetWorkload('64k'),
  objectives: { ttftS: 4, tpotS: 0.05 },
  seed: 1,
  threads: 1,
};

describe('a plan', () => {
  it('finds that prefill limits DS 660B, and storage DS 27B', () => {
    const at = (model: string): ReturnType<typeof divisions>[number] | undefined =>
      divisions({ ...options, model: modelCostOf(model) }, 6).find(({ prefillNodes }) => prefillNodes === 2);
    expect(at('ds-v3.2-660b')?.bottleneck).toBe('prefill');
    expect(at('ds-27b')?.bottleneck).toBe('storage');
    expect(at('ds-v3.2-660b')?.isBottleneckFree).toBe(true);
  });

  it('refuses a cluster of one node, and one that no division makes large enough', async () => {
    await expect(planCluster({ ...options, nodes: 1 })).rejects.toThrow(
      /has none of one role: use 2 or more/,
    );
    const small = { ...options.hardware, hbmBytes: 20e9 };
    await expect(planCluster({ ...options, hardware: small, nodes: 2 })).rejects.toThrow(
      /of weights for each/,
    );
  });

  it('comes out whole for a small workload, and says what to buy', async () => {
    // Long prompts and slow GPUs, so that few requests fill a cluster.
    const hardware = { ...options.hardware, peakFlopsPerS: options.hardware.peakFlopsPerS / 40 };
    const scripts = [
      scriptOf([
        { append: 60_000, output: 200 },
        { append: 4000, output: 200 },
      ]),
    ];
    const workload = { name: 'long', blockTokens: 64, scripts, arrivalS: new Float64Array(0) };
    const plan = await planCluster({
      ...options,
      hardware,
      model: modelCostOf('ds-27b'),
      nodes: 2,
      workload,
      objectives: { ttftS: 900, tpotS: 0.05 },
      agents: 4,
    });
    const [low, high] = plan.capacityInterval;
    expect(plan.capacityAps).toBeGreaterThan(0);
    expect(low).toBeLessThanOrEqual(plan.capacityAps);
    expect(high).toBeGreaterThanOrEqual(plan.capacityAps);
    expect(plan.buyNext).toMatch(/a prefill node more|nothing alone/);
    expect(plan.job!.jctS).toBeGreaterThan(0);
    expect(plan.sensitivity).toHaveLength(10);
    expect(reportHtml(planReport(plan, 'a <plan>'))).toContain('a &#60;plan&#62;');
  });
});
