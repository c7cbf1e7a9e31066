import { setImmediate } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';

export interface TaskRunner<Task, Result> {
  /** A module that answers every message with `run(task)`. */
  readonly worker: URL;
  /** What the worker is given as workerData. */
  readonly data?: unknown;
  /** The same in this thread. */
  readonly run: (task: Task) => Result;
}

export interface TaskOptions {
  /** 0 or 1: in this thread. */
  readonly threads: number;
  readonly signal?: AbortSignal | undefined;
  readonly onDone?: ((done: number) => void) | undefined;
}

/**
 * Runs tasks on threads. Results are in the order of the tasks, whatever the threads do; where the signal came before a
 * task's end, its result is undefined.
 */
export async function runTasks<Task, Result>(
  runner: TaskRunner<Task, Result>,
  tasks: readonly Task[],
  options: TaskOptions,
): Promise<(Result | undefined)[]> {
  const results = new Array<Result | undefined>(tasks.length).fill(undefined);
  let next = 0;
  let done = 0;
  const take = (): number => (options.signal?.aborted === true || next >= tasks.length ? -1 : next++);
  const keep = (index: number, result: Result): void => {
    results[index] = result;
    options.onDone?.(++done);
  };
  if (options.threads <= 1) {
    for (let index = take(); index >= 0; index = take()) {
      keep(index, runner.run(tasks[index]!));
      await setImmediate();
    }
    return results;
  }
  const threads = Math.min(options.threads, tasks.length);
  await Promise.all(
    Array.from({ length: threads }, () => runThread(runner, tasks, take, keep, options.signal)),
  );
  return results;
}

async function runThread<Task, Result>(
  runner: TaskRunner<Task, Result>,
  tasks: readonly Task[],
  take: () => number,
  keep: (index: number, result: Result) => void,
  signal: AbortSignal | undefined,
): Promise<void> {
  const worker = new Worker(runner.worker, { workerData: runner.data });
  let index = take();
  try {
    await new Promise<void>((resolve, reject) => {
      const send = (): void => {
        if (index < 0) resolve();
        else worker.postMessage(tasks[index]!);
      };
      worker.on('message', (result: Result) => {
        keep(index, result);
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
