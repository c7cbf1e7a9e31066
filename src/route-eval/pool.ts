import { setImmediate } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import type { RunMetrics } from './metrics.js';
import { runTask, type Task } from './run.js';
import type { RouteTrace } from './trace.js';

export interface PoolOptions {
  /** 0 or 1: in this thread. */
  readonly threads: number;
  readonly signal?: AbortSignal | undefined;
  readonly onDone?: ((done: number) => void) | undefined;
}

/**
 * Runs tasks on threads. Results are in the order of the tasks, whatever the threads do; where the signal came before a
 * task's end, its result is undefined.
 */
export async function runTasks(
  trace: RouteTrace,
  tasks: readonly Task[],
  options: PoolOptions,
): Promise<(RunMetrics | undefined)[]> {
  const results = new Array<RunMetrics | undefined>(tasks.length).fill(undefined);
  let next = 0;
  let done = 0;
  const take = (): number => (options.signal?.aborted === true || next >= tasks.length ? -1 : next++);
  const keep = (index: number, metrics: RunMetrics): void => {
    results[index] = metrics;
    options.onDone?.(++done);
  };
  if (options.threads <= 1) {
    for (let index = take(); index >= 0; index = take()) {
      keep(index, runTask(trace, tasks[index]!));
      await setImmediate();
    }
    return results;
  }
  const threads = Math.min(options.threads, tasks.length);
  await Promise.all(
    Array.from({ length: threads }, () => runThread(trace, tasks, take, keep, options.signal)),
  );
  return results;
}

async function runThread(
  trace: RouteTrace,
  tasks: readonly Task[],
  take: () => number,
  keep: (index: number, metrics: RunMetrics) => void,
  signal: AbortSignal | undefined,
): Promise<void> {
  const worker = new Worker(new URL('./worker.js', import.meta.url), { workerData: trace });
  let index = take();
  try {
    await new Promise<void>((resolve, reject) => {
      const send = (): void => {
        if (index < 0) resolve();
        else worker.postMessage(tasks[index]!);
      };
      worker.on('message', (metrics: RunMetrics) => {
        keep(index, metrics);
        index = take();
        send();
      });
      worker.once('error', reject);
      signal?.addEventListener('abort', () => resolve(), { once: true });
      send();
    });
  } finally {
    await worker.terminate();
  }
}
