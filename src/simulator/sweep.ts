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

/** Independent runs on threads; undefined where the signal came first. */
export function sweep(tasks: readonly SweepTask[], options: TaskOptions): Promise<(RunResult | undefined)[]> {
  const worker = new URL('./worker.js', import.meta.url);
  return runTasks({ worker, run: runSweepTask }, tasks, options);
}

export function isDataSet(name: string): name is DataSetName {
  return Object.hasOwn(dataSets, name);
}
