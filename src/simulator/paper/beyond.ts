import { laneFloor } from '../bounds.js';
import { hardwareOf } from '../hardware.js';
import { modelCostOf } from '../model-cost.js';
import { ratio } from './offline.js';
import { row, type FigureRow } from './row.js';
import type { Results, Task } from './tasks.js';

const horizonS = 5400;
const loadAps = 0.4;
/** Tail policy: computed tokens, a small beta, a millisecond of slack a computed token (docs/scheduler.md). */
const tailSettings = { hitTokenWeight: 0, betaTokens: 2500, slackSPerToken: 0.001 };

export function beyondTasks(): Task[] {
  const open = (id: string, changes: Partial<Extract<Task, { kind: 'run' }>>): Task => ({
    id,
    kind: 'run',
    workload: '64k',
    deployment: { mode: 'dualpath' },
    arrivals: { kind: 'poisson', agentsPerS: loadAps, untilS: horizonS },
    stop: { maxVirtualS: horizonS, warmupS: horizonS / 3 },
    ...changes,
  });
  return [
    open('online split', { deployment: { mode: 'split' } }),
    open('online tail', { settings: tailSettings }),
  ];
}

export function beyondRows(results: Results): FigureRow[] {
  const paper = results.run(`online ${loadAps}`);
  const split = results.run('online split');
  const tail = results.run('online tail');
  const common = { section: 'beyond', kind: 'predicted', unit: 'x' } as const;
  return [
    row({
      ...common,
      name: 'split reads over whole ones, JCT, 2,048 agents',
      ours: ratio(
        results.run('offline 2048 split')?.makespanS,
        results.run('offline 2048 dualpath')?.makespanS,
      ),
    }),
    row({
      ...common,
      name: 'split reads over whole ones, TTFT p50, 0.4 APS',
      ours: ratio(split?.ttftS.p50, paper?.ttftS.p50),
    }),
    row({
      ...common,
      name: 'split reads over whole ones, TTFT p99, 0.4 APS',
      ours: ratio(split?.ttftS.p99, paper?.ttftS.p99),
    }),
    row({
      ...common,
      name: "tail policy over the paper's, TTFT p50, 0.4 APS",
      ours: ratio(tail?.ttftS.p50, paper?.ttftS.p50),
    }),
    row({
      ...common,
      name: "tail policy over the paper's, TTFT p99, 0.4 APS",
      ours: ratio(tail?.ttftS.p99, paper?.ttftS.p99),
    }),
    ...isolationRows(results),
  ];
}

/**
 * What collectives of decode engines lose to KV-Cache on the same NIC: while KV is on it, without classes they get half of
 * it; with classes KV gets its lane's floor. By bandwidth alone: queueing within the NIC would come on top.
 */
function isolationRows(results: Results): FigureRow[] {
  const run = results.run(`online ${loadAps}`);
  const model = modelCostOf('ds-v3.2-660b');
  const { cnicBytesPerS } = hardwareOf('hopper');
  const engines = 32;
  const toHbm = run && (run.promptTokensPerS * model.bytesPerToken) / (engines * cnicBytesPerS);
  const kvShare = run && run.cnic.decode + toHbm!;
  const collective = run && (run.decodeBatch * model.collectiveBytesPerToken) / cnicBytesPerS / run.tpotMeanS;
  const floor = laneFloor(240, 64, [192, 192, 64, 192]).high;
  const common = { section: 'beyond', kind: 'predicted' } as const;
  return [
    row({ ...common, name: "KV-Cache's share of a decode NIC, 0.4 APS", unit: '', ours: kvShare }),
    row({
      ...common,
      name: 'TPOT inflation without class isolation',
      unit: 'x',
      ours: run && 1 + collective! * kvShare!,
      note: 'bandwidth alone',
    }),
    row({
      ...common,
      name: 'TPOT inflation with class isolation',
      unit: 'x',
      ours: run && 1 + collective! * Math.min(kvShare!, floor),
      note: 'bandwidth alone',
    }),
  ];
}
