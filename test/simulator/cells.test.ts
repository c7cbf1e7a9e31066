import { describe, expect, it } from 'vitest';
import { cellRoutings, type CellRouting } from '../../src/simulator/cells.js';
import { deployment, settingsOf } from '../../src/simulator/deployment.js';
import { modelCostOf } from '../../src/simulator/model-cost.js';
import { simulate, type RunResult } from '../../src/simulator/run.js';
import type { Arrivals } from '../../src/simulator/settings.js';
import { dataSetWorkload } from '../../src/simulator/workload.js';

const workload = dataSetWorkload('32k');
const agents = 48;
const scripts = workload.scripts.slice(0, agents);
const turns = scripts.reduce((sum, { promptTokens }) => sum + promptTokens.length, 0);

function run(cells: number | undefined, routing: CellRouting, arrivals: Arrivals): RunResult {
  const plan = deployment({ prefillNodes: 2, decodeNodes: 4, model: modelCostOf('ds-27b') });
  const settings = {
    ...settingsOf(plan, workload),
    ...(cells === undefined ? {} : { cells: { cells, routing, sloS: 4 } }),
  };
  return simulate(settings, workload, arrivals, { maxVirtualS: 1e6 });
}

const together: Arrivals = { kind: 'together', agents };

describe('a router in front of cells', () => {
  it.each(cellRoutings)('%s: every turn ends, once', (routing) => {
    const { ending, turnsEnded, requests } = run(2, routing, together);
    expect([ending, turnsEnded, requests]).toEqual(['complete', turns, turns]);
  });

  it.each(cellRoutings)('%s in front of one cell changes nothing', (routing) => {
    const arrivals: Arrivals = { kind: 'poisson', agentsPerS: 0.2, untilS: 400 };
    expect({ ...run(1, routing, arrivals), cpuS: 0 }).toEqual({
      ...run(undefined, routing, arrivals),
      cpuS: 0,
    });
  });

  it('hits what a cell has: all of it where sessions stay, less where they go about', () => {
    const [whole, hash, spread] = [
      run(undefined, 'hash', together),
      run(2, 'hash', together),
      run(2, 'least-loaded', together),
    ].map(({ hitShare }) => hitShare);
    expect(hash).toBeCloseTo(whole!, 9);
    expect(spread).toBeLessThan(whole! - 0.01);
  });

  it('refuses nodes that cells cannot share alike', () => {
    expect(() => run(3, 'dualmap', together)).toThrow(
      /2 prefill nodes do not make 3 cells alike; use a multiple/,
    );
  });
});
