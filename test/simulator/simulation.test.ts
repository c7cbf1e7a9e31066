import { describe, expect, it } from 'vitest';
import { deployment, settingsOf, type Deployment } from '../../src/simulator/deployment.js';
import { modelCostOf } from '../../src/simulator/model-cost.js';
import type { SimulatedMode } from '../../src/simulator/modes.js';
import { simulate, type RunResult } from '../../src/simulator/run.js';
import type { Arrivals, ClusterSettings } from '../../src/simulator/settings.js';
import { dataSetWorkload, scriptOf, type SimulatedWorkload } from '../../src/simulator/workload.js';

const workload = dataSetWorkload('32k');
const model = modelCostOf('ds-27b');

function run(
  mode: SimulatedMode,
  arrivals: Arrivals,
  changes: Partial<Deployment> = {},
  settings: Partial<ClusterSettings> = {},
  of: SimulatedWorkload = workload,
): RunResult {
  const plan = deployment({ prefillNodes: 1, decodeNodes: 2, mode, model, ...changes });
  return simulate({ ...settingsOf(plan, of), ...settings }, of, arrivals, { maxVirtualS: 1e6 });
}

const together: Arrivals = { kind: 'together', agents: 24 };
const turns = workload.scripts.slice(0, 24).reduce((sum, { promptTokens }) => sum + promptTokens.length, 0);

describe('a simulated cluster', () => {
  it('serves every turn of every agent, and reads what is hit once', () => {
    const hits = workload.scripts
      .slice(0, 24)
      .reduce((sum, { hitTokens }) => sum + hitTokens.reduce((all, value) => all + value, 0), 0);
    for (const mode of ['basic', 'layerwise', 'round-robin', 'dualpath', 'split', 'oracle'] as const) {
      const result = run(mode, together);
      expect([result.ending, result.turnsEnded, result.requests]).toEqual(['complete', turns, turns]);
      expect(result.snic.readBytes).toBeCloseTo(mode === 'oracle' ? 0 : hits * model.bytesPerToken, -3);
    }
  });

  it('is the same for the same seed', () => {
    const [a, b] = [1, 2].map(() => run('dualpath', { kind: 'poisson', agentsPerS: 0.5, untilS: 400 }));
    expect({ ...a!, cpuS: 0 }).toEqual({ ...b!, cpuS: 0 });
  });

  it('is slower the less it has', () => {
    const jct = (mode: SimulatedMode): number => run(mode, { kind: 'together', agents: 200 }).makespanS;
    const order = (['basic', 'layerwise', 'round-robin', 'oracle'] as const).map(jct);
    expect(order).toEqual(order.toSorted((a, b) => b - a));
    expect(jct('dualpath')).toBeLessThan(order[1]!);
  });

  it('has the latency of its parts when one agent is alone', () => {
    const script = { ...scriptOf([{ append: 640, output: 11 }]) };
    script.hitTokens[0] = 576;
    const alone = { name: 'one', blockTokens: 64, scripts: [script], arrivalS: new Float64Array(0) };
    const plan = deployment({ prefillNodes: 1, decodeNodes: 2, model });
    const settings = { ...settingsOf(plan, workload), fetchS: 0 };
    const result = simulate(settings, alone, { kind: 'trace' }, { maxVirtualS: 1e3 });
    const { baseS, perNewTokenS, perAttentionTokenS, perAttentionPairS } = settings.prefillTime;
    const readS = (576 * model.bytesPerToken) / settings.snicBytesPerS;
    const attentionS = 64 * perAttentionTokenS + 64 * (576 + 32.5) * perAttentionPairS;
    const forwardS = baseS + (64 * perNewTokenS) / 8 + attentionS;
    // Filling and draining the pipeline of layers comes on top: under a millisecond.
    expect(result.ttftS.mean).toBeGreaterThan(readS + forwardS);
    expect(result.ttftS.mean).toBeLessThan(readS + forwardS + 0.001);
    expect(result.tpotMeanS).toBeCloseTo(settings.decodeBaseS + settings.decodePerSequenceS, 9);
  });

  it('knows an overload and ends', () => {
    const plan = deployment({ prefillNodes: 1, decodeNodes: 1, mode: 'basic', model });
    const result = simulate(
      settingsOf(plan, workload),
      workload,
      { kind: 'poisson', agentsPerS: 5, untilS: 1e5 },
      { maxVirtualS: 1e5, overloadTtftS: 20, warmupS: 100 },
    );
    expect(result.ending).toBe('overloaded');
    expect(result.makespanS).toBeLessThan(2000);
  });

  it('is slowed where compute NICs are full, and not otherwise', () => {
    expect(run('dualpath', together).crowdedS).toBeCloseTo(0, 9);
    const narrow = run('dualpath', together, {}, { cnicBytesPerS: 1e9 });
    expect(narrow.makespanS).toBeGreaterThan(1.2 * run('dualpath', together).makespanS);
  });

  it('waits while agents think', () => {
    const script = scriptOf(
      [
        { append: 64, output: 1 },
        { append: 64, output: 1 },
      ],
      100,
    );
    const thinking = { name: 'think', blockTokens: 64, scripts: [script], arrivalS: new Float64Array(0) };
    expect(run('dualpath', { kind: 'trace' }, {}, {}, thinking).makespanS).toBeGreaterThan(100);
  });
});
