import { dataSets, type DataSetName } from '../trace/index.js';
import { runTasks, type TaskOptions } from '../threads/index.js';
import { deployment, settingsOf, type Deployment } from './deployment.js';
import { simulate, type RunResult } from './run.js';
import type { Arrivals, ClusterSettings, StopRules } from './settings.js';
import { dataSetWorkload, type DataSetScale, type SimulatedWorkload } from './workload.js';

/** One run of a sweep: plain data. */
export interface SweepTask {
  /** A data set by name (made by each thread, once), or any other workload as it is. */
  readonly workload: DataSetName | SimulatedWorkload;
  readonly scale?: DataSetScale;
  readonly deployment: Partial<Deployment>;
  /** On top of what the deployment comes to. */
  readonly settings?: Partial<ClusterSettings>;
  readonly arrivals: Arrivals;
  readonly stop: StopRules;
}

const made = new Map<string, SimulatedWorkload>();

export function workloadOf({ workload, scale }: Pick<SweepTask, 'workload' | 'scale'>): SimulatedWorkload {
  if (typeof workload !== 'string') return workload;
  const key = `${workload} ${scale?.append ?? 1} ${scale?.output ?? 1}`;
  let found = made.get(key);
  if (found === undefined) {
    found = dataSetWorkload(workload, scale);
    made.set(key, found);
  }
  return found;
}

export function runSweepTask(task: SweepTask): RunResult {
  const workload = workloadOf(task);
  const settings = { ...settingsOf(deployment(task.deployment), workload), ...task.settings };
  return simulate(settings, workload, task.arrivals, task.stop);
}

/** How many agents a second a cluster serves within its objectives: found by bisection. */
export interface CapacityTask extends Omit<SweepTask, 'arrivals' | 'stop'> {
  readonly objectives: Objectives;
  /** Searched between these, agents a second. */
  readonly lowAps: number;
  readonly highAps: number;
  readonly toleranceAps: number;
  /** Of each run at most; the first third is not measured. */
  readonly horizonS: number;
  /**
   * When a rate counts as too much: by the mean over the measured time, or, as in the paper, as soon as the TTFT of a
   * window of 150 s is beyond the objective, unless it is steady before.
   */
  readonly rule: 'mean' | 'paper';
}

export interface Objectives {
  /** On the means of the measured time, as in the paper. */
  readonly ttftS: number;
  readonly tpotS: number;
}

export interface Capacity {
  readonly aps: number;
  /** At that rate. */
  readonly run: RunResult | undefined;
  /** The bounds of the search are not good enough: even the lowest rate fails, or the highest does not. */
  readonly isBound: boolean;
}

export function runCapacityTask(task: CapacityTask): Capacity {
  const { objectives, horizonS, toleranceAps } = task;
  const warmupS = horizonS / 3;
  const rules =
    task.rule === 'paper'
      ? { overloadTtftS: objectives.ttftS, steadyAfterS: 1800 }
      : { overloadTtftS: 4 * objectives.ttftS };
  const at = (agentsPerS: number): RunResult =>
    runSweepTask({
      ...task,
      arrivals: { kind: 'poisson', agentsPerS, untilS: horizonS },
      stop: { maxVirtualS: horizonS, warmupS, ...rules },
    });
  let low = task.lowAps;
  let high = task.highAps;
  let best: RunResult | undefined;
  while (high - low > toleranceAps) {
    const middle = (low + high) / 2;
    const run = at(middle);
    if (meets(run, objectives)) {
      low = middle;
      best = run;
    } else {
      high = middle;
    }
  }
  return { aps: (low + high) / 2, run: best, isBound: low === task.lowAps || high === task.highAps };
}

export function meets({ ending, ttftS, tpotMeanS }: RunResult, objectives: Objectives): boolean {
  return ending !== 'overloaded' && ttftS.mean <= objectives.ttftS && tpotMeanS <= objectives.tpotS;
}

export type AnyTask = ({ readonly kind: 'run' } & SweepTask) | ({ readonly kind: 'capacity' } & CapacityTask);

export function runAnyTask(task: AnyTask): RunResult | Capacity {
  return task.kind === 'run' ? runSweepTask(task) : runCapacityTask(task);
}

/** Independent runs on threads; undefined where the signal came first. */
export async function sweep(
  tasks: readonly SweepTask[],
  options: TaskOptions,
): Promise<(RunResult | undefined)[]> {
  const results = await sweepAny(
    tasks.map((task) => ({ kind: 'run', ...task })),
    options,
  );
  return results as (RunResult | undefined)[];
}

export function sweepAny(
  tasks: readonly AnyTask[],
  options: TaskOptions,
): Promise<(RunResult | Capacity | undefined)[]> {
  return runTasks({ worker: new URL('./worker.js', import.meta.url), run: runAnyTask }, tasks, options);
}

export function isDataSet(name: string): name is DataSetName {
  return Object.hasOwn(dataSets, name);
}
