/** The published figures of the paper, derived again: one table. */
import type { TaskOptions } from '../../threads/index.js';
import { fittedConstants, takenConstants } from '../constants.js';
import { sweepAny } from '../sweep.js';
import { boundRows, table1Rows, workloadRows } from './arithmetic.js';
import { beyondRows, beyondTasks } from './beyond.js';
import { cellRows, cellTasks } from './cells.js';
import { balanceRows, offlineRows, offlineTasks, ratioRows } from './offline.js';
import { onlineRows, onlineTasks } from './online.js';
import { sections, type FigureRow, type RowKind } from './row.js';
import { ds27bRows, ds27bTasks, scaleRows, scaleTasks } from './scale.js';
import { Results, type Task } from './tasks.js';

export { sections, type FigureRow, type RowKind, type Section } from './row.js';

export interface PaperOptions extends TaskOptions {
  /** Leaves out what takes long; under a minute on two free cores. */
  readonly isQuick: boolean;
}

export interface PaperResult {
  readonly isQuick: boolean;
  /** False when it was interrupted: rows without their runs have no value of ours. */
  readonly complete: boolean;
  readonly rows: readonly FigureRow[];
  readonly counts: Readonly<Record<RowKind, number>>;
  /** Of rows that have a tolerance and a value. */
  readonly withinTolerance: number;
  readonly outsideTolerance: number;
  readonly fitted: typeof fittedConstants;
  readonly taken: typeof takenConstants;
  readonly events: number;
  readonly cpuS: number;
}

/** Runs of the table, the longest first so that threads end together. */
export function paperTasks(isQuick: boolean): Task[] {
  const tasks = [
    ...scaleTasks(isQuick),
    ...onlineTasks(isQuick),
    ...offlineTasks(isQuick),
    ...ds27bTasks(isQuick),
    ...(isQuick ? [] : [...beyondTasks(), ...cellTasks()]),
  ];
  return tasks.sort((a, b) => costOf(b) - costOf(a));
}

/** About in proportion to a run's requests. */
function costOf(task: Task): number {
  if (task.kind === 'capacity') return 6 * task.highAps * task.horizonS;
  const { arrivals } = task;
  if (arrivals.kind === 'poisson') return arrivals.agentsPerS * arrivals.untilS;
  return arrivals.kind === 'together' ? arrivals.agents : 0;
}

export async function derivePaper(options: PaperOptions): Promise<PaperResult> {
  const { isQuick } = options;
  const tasks = paperTasks(isQuick);
  const done = await sweepAny(tasks, options);
  const results = new Results();
  for (const [index, result] of done.entries()) {
    if (result !== undefined) results.set(tasks[index]!.id, result);
  }
  const rows = [
    ...table1Rows(),
    ...boundRows(),
    ...workloadRows(),
    ...offlineRows(results),
    ...ratioRows(results),
    ...balanceRows(results),
    ...onlineRows(results, isQuick),
    ...scaleRows(results),
    ...ds27bRows(results),
    ...beyondRows(results),
    ...cellRows(results),
  ].sort((a, b) => order.indexOf(a.section) - order.indexOf(b.section));
  const runs = done.flatMap((result) =>
    result === undefined ? [] : 'aps' in result ? (result.run ?? []) : result,
  );
  return {
    isQuick,
    complete: done.every((result) => result !== undefined),
    rows,
    counts: countKinds(rows),
    withinTolerance: rows.filter(({ withinTolerance }) => withinTolerance === true).length,
    outsideTolerance: rows.filter(({ withinTolerance }) => withinTolerance === false).length,
    fitted: fittedConstants,
    taken: takenConstants,
    events: runs.reduce((sum, { events }) => sum + events, 0),
    cpuS: runs.reduce((sum, { cpuS }) => sum + cpuS, 0),
  };
}

const order = Object.keys(sections);

function countKinds(rows: readonly FigureRow[]): Record<RowKind, number> {
  const counts: Record<RowKind, number> = { fitted: 0, predicted: 0, arithmetic: 0, structural: 0 };
  for (const { kind, published } of rows) if (published !== null) counts[kind]++;
  return counts;
}
