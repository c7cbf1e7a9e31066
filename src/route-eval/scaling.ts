import { goodputOf } from './statistics.js';
import { runTask } from './run.js';
import type { ClusterSetting } from './simulation.js';
import type { RouteTrace } from './trace.js';

export interface ScalingOptions {
  readonly policies: readonly string[];
  /** Goodput of 8 replicas: the rates tried lie around it, in proportion to the replicas. */
  readonly qps: number;
  readonly setting: ClusterSetting;
  readonly scalingReplicas: readonly number[];
  readonly warmUpRequests: number;
  readonly signal?: AbortSignal | undefined;
}

export interface ScalingResult {
  readonly policy: string;
  readonly replicas: number;
  /** Copies of the trace, each with blocks of its own: load and prefixes grow with the cluster. */
  readonly copies: number;
  readonly requests: number;
  readonly goodputQps: number;
  /** Goodput a replica, over that of the smallest cluster. */
  readonly efficiency: number;
  readonly wallS: number;
}

/** Requests of a copy: enough for a warm cluster, few enough for 128 copies. */
const requestsPerCopy = 2000;
/** Rates around the expected goodput, from the lowest up; and where that one is too high, down. */
const stepsUp = [0.7, 0.8, 0.85, 0.9, 0.95, 1, 1.05, 1.1, 1.2, 1.35] as const;
const stepsDown = [0.5, 0.35, 0.2, 0.1] as const;
const goodShare = 0.9;

/** One seed: with many replicas one run averages over as many as several seeds do. */
export function scaling(trace: RouteTrace, options: ScalingOptions): ScalingResult[] {
  const part = cut(trace, requestsPerCopy);
  const results: ScalingResult[] = [];
  for (const policy of options.policies) {
    let first: ScalingResult | undefined;
    for (const replicas of options.scalingReplicas) {
      if (options.signal?.aborted === true) return results;
      const copies = Math.max(1, Math.round(replicas / options.setting.replicas));
      const started = performance.now();
      const goodputQps = findGoodput(part, policy, replicas, copies, options);
      const wallS = (performance.now() - started) / 1000;
      const perReplica = goodputQps / replicas;
      const efficiency = first === undefined ? 1 : perReplica / (first.goodputQps / first.replicas);
      const requests = copies * part.promptTokens.length;
      const result = { policy, replicas, copies, requests, goodputQps, efficiency, wallS };
      first ??= result;
      results.push(result);
    }
  }
  return results;
}

function findGoodput(
  trace: RouteTrace,
  policy: string,
  replicas: number,
  copies: number,
  options: ScalingOptions,
): number {
  const warmUpRequests = Math.min(options.warmUpRequests, Math.floor(trace.promptTokens.length / 4)) * copies;
  const setting = { ...options.setting, replicas };
  const runs: { qps: number; attainment: number }[] = [];
  const tryStep = (step: number): number => {
    const qps = (options.qps * step * replicas) / options.setting.replicas;
    const { attainment } = runTask(trace, { policy, qps, seed: 0, setting, warmUpRequests, copies });
    runs.push({ qps, attainment });
    return attainment;
  };
  // Rates far beyond the goodput only take longer.
  stepsUp.every((step) => tryStep(step) >= goodShare - 0.1);
  if (runs[0]!.attainment < goodShare) stepsDown.some((step) => tryStep(step) >= goodShare);
  runs.sort((a, b) => a.qps - b.qps);
  return goodputOf(
    runs.map(({ qps }) => qps),
    runs.map(({ attainment }) => attainment),
    goodShare,
  ).qps;
}

function cut(trace: RouteTrace, requests: number): RouteTrace {
  const count = Math.min(requests, trace.promptTokens.length);
  return {
    ...trace,
    arrivalMs: trace.arrivalMs.slice(0, count),
    promptTokens: trace.promptTokens.slice(0, count),
    starts: trace.starts.slice(0, count + 1),
    ids: trace.ids.slice(0, trace.starts[count]),
  };
}
