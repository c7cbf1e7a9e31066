import type { CellRouting } from '../cells.js';
import { ratio } from './offline.js';
import { row, type FigureRow } from './row.js';
import type { Results, Task } from './tasks.js';

const cells = 4;
const horizonS = 1800;
const sloS = 4;
/** Agents a second and cell: at ease, and about what a cell can carry. */
const rates = [0.4, 0.5] as const;
const routings = ['dualmap', 'late-lane', 'hash', 'least-loaded'] as const;

const names: Readonly<Record<CellRouting, string>> = {
  dualmap: 'DualMap',
  'late-lane': 'late lane',
  hash: 'hash affinity',
  'least-loaded': 'least loaded',
};

const idOf = (aps: number, routing: CellRouting | 'one cluster'): string => `cells ${aps} ${routing}`;

/** Four cells of 2P4D and a router in front, and all their nodes as one cluster. */
export function cellTasks(): Task[] {
  return rates.flatMap((aps) =>
    (['one cluster', ...routings] as const).map((routing): Task => ({
      id: idOf(aps, routing),
      kind: 'run',
      workload: '64k',
      deployment: { mode: 'dualpath', prefillNodes: 2 * cells, decodeNodes: 4 * cells },
      ...(routing === 'one cluster' ? {} : { settings: { cells: { cells, routing, sloS } } }),
      arrivals: { kind: 'poisson', agentsPerS: cells * aps, untilS: horizonS },
      stop: { maxVirtualS: horizonS, warmupS: horizonS / 3 },
    })),
  );
}

/** A cell has a store of its own: a request that goes to another than its session's computes its context again. */
export function cellRows(results: Results): FigureRow[] {
  const common = { section: 'beyond', kind: 'predicted' } as const;
  return rates.flatMap((aps) => {
    const one = results.run(idOf(aps, 'one cluster'));
    return routings.flatMap((routing) => {
      const run = results.run(idOf(aps, routing));
      const where = `${names[routing]} in front of ${cells} cells, ${aps} APS each`;
      return [
        row({
          ...common,
          name: `${where}: TTFT mean over that of one cluster`,
          unit: 'x',
          ours: ratio(run?.ttftS.mean, one?.ttftS.mean),
        }),
        row({ ...common, name: `${where}: hits`, unit: '', ours: run?.hitShare }),
      ];
    });
  });
}
