import { runTasks as runOnThreads, type TaskOptions } from '../threads/index.js';
import type { RunMetrics } from './metrics.js';
import { runTask, type Task } from './run.js';
import type { RouteTrace } from './trace.js';

export type PoolOptions = TaskOptions;

/** Runs of one trace on threads, see `runTasks` of src/threads. */
export function runTasks(
  trace: RouteTrace,
  tasks: readonly Task[],
  options: PoolOptions,
): Promise<(RunMetrics | undefined)[]> {
  const worker = new URL('./worker.js', import.meta.url);
  return runOnThreads({ worker, data: trace, run: (task: Task) => runTask(trace, task) }, tasks, options);
}
