import { arrivalTimesS } from './arrivals.js';
import { runMetrics, type RunMetrics } from './metrics.js';
import { policyOf } from './policies.js';
import { Simulation, traceKeys, type ClusterSetting } from './simulation.js';
import type { RouteTrace } from './trace.js';

/** One run: what a worker is given. */
export interface Task {
  readonly policy: string;
  readonly qps: number;
  readonly seed: number;
  readonly setting: ClusterSetting;
  readonly warmUpRequests: number;
  /** Copies of the trace with blocks of their own, merged; 1 but for larger clusters. */
  readonly copies: number;
}

const keysOf = new WeakMap<RouteTrace, Uint32Array>();

/** Deterministic: equal tasks on equal traces have equal results. */
export function runTask(trace: RouteTrace, task: Task): RunMetrics {
  const [merged, keys] = task.copies === 1 ? [trace, cachedKeys(trace)] : mergedCopies(trace, task.copies);
  const simulation = new Simulation(
    task.setting,
    policyOf(task.policy).make(task.seed),
    merged.promptTokens.length,
    trace.blockTokens,
  );
  const timesS = task.copies === 1 ? arrivalTimesS(trace, task.qps, task.seed) : copiedTimesS(trace, task);
  const tables = simulation.run({ trace: merged, keys, timesS });
  return runMetrics(merged, tables, { warmUpRequests: task.warmUpRequests, sloS: task.setting.sloS });
}

function cachedKeys(trace: RouteTrace): Uint32Array {
  const keys = keysOf.get(trace) ?? traceKeys(trace);
  keysOf.set(trace, keys);
  return keys;
}

/** Request i of every copy, then request i + 1: the copies advance together. */
function mergedCopies(trace: RouteTrace, copies: number): [RouteTrace, Uint32Array] {
  const count = trace.promptTokens.length;
  const promptTokens = new Uint32Array(count * copies);
  const starts = new Uint32Array(count * copies + 1);
  const ids = new Uint32Array(trace.ids.length * copies);
  const keys = new Uint32Array(2 * ids.length);
  const copyKeys = Array.from({ length: copies }, (_, copy) => traceKeys(trace, copy));
  for (let i = 0, out = 0, at = 0; i < count; i++) {
    const [start, end] = [trace.starts[i]!, trace.starts[i + 1]!];
    for (let copy = 0; copy < copies; copy++, out++, at += end - start) {
      promptTokens[out] = trace.promptTokens[i]!;
      ids.set(trace.ids.subarray(start, end), at);
      keys.set(copyKeys[copy]!.subarray(2 * start, 2 * end), 2 * at);
      starts[out + 1] = at + end - start;
    }
  }
  return [{ ...trace, promptTokens, starts, ids, arrivalMs: new Float64Array(0) }, keys];
}

/** Every copy is spread by its own seed; merged, the n-th request of all has the n-th time of all. */
function copiedTimesS(trace: RouteTrace, task: Task): Float64Array {
  const timesS = new Float64Array(trace.promptTokens.length * task.copies);
  for (let copy = 0; copy < task.copies; copy++) {
    const own = arrivalTimesS(trace, task.qps / task.copies, task.seed * 4096 + copy);
    timesS.set(own, copy * own.length);
  }
  return timesS.sort();
}
