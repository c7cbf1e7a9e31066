import { arrivalTimesS } from './arrivals.js';
import { policyOf } from './policies.js';
import { Simulation, traceKeys, type ClusterSetting, type Resize } from './simulation.js';
import { estimate, type Estimate } from './statistics.js';
import type { RouteTrace } from './trace.js';

/** 4 replicas under a load for 8, 8 from second 74 on as published, and 4 again once the load has fallen to theirs. */
export interface ElasticityOptions {
  readonly policies: readonly string[];
  /** Rate at which 8 replicas meet the SLO and 4 do not. */
  readonly qps: number;
  readonly setting: ClusterSetting;
  readonly seeds: number;
  readonly signal?: AbortSignal | undefined;
}

export interface ElasticityResult {
  readonly policy: string;
  readonly qps: number;
  readonly lowQps: number;
  readonly scaledUpAtS: number;
  readonly loadFallsAtS: number;
  readonly scaledDownAtS: number;
  /** Share of requests within the SLO, of those that came in each part: before, after the growth, after the shrinking. */
  readonly overloaded: Estimate;
  /** From `recoveredAfterS` on. */
  readonly scaledUp: Estimate;
  readonly scaledDown: Estimate;
  /** From the growth until 10 s of arrivals in which 90 % meet the SLO; over seeds that got there. */
  readonly recoveredAfterS: Estimate | null;
  readonly seedsRecovered: number;
}

const scaledUpAtS = 74;
const loadFallsAtS = 374;
const scaledDownAtS = 434;
const endsAtS = 734;
const sliceS = 10;

export function elasticity(trace: RouteTrace, options: ElasticityOptions): ElasticityResult[] {
  const lowQps = (0.8 * options.qps) / 2;
  const results: ElasticityResult[] = [];
  for (const policy of options.policies) {
    const runs: Slices[] = [];
    for (let seed = 0; seed < options.seeds && options.signal?.aborted !== true; seed++) {
      runs.push(runOnce(trace, policy, seed, lowQps, options));
    }
    if (runs.length > 0) results.push(resultOf(policy, runs, options.qps, lowQps));
  }
  return results;
}

/** Requests that came in each slice, and those of them within the SLO. */
interface Slices {
  readonly came: Float64Array;
  readonly good: Float64Array;
}

function runOnce(
  trace: RouteTrace,
  policy: string,
  seed: number,
  lowQps: number,
  options: ElasticityOptions,
): Slices {
  const timesS = twoRatesS(arrivalTimesS(trace, options.qps, seed), lowQps / options.qps);
  const setting = { ...options.setting, replicas: 4 };
  const resizes: Resize[] = [
    { atS: scaledUpAtS, replicas: 8 },
    { atS: scaledDownAtS, replicas: 4 },
  ];
  const simulation = new Simulation(
    setting,
    policyOf(policy).make(seed),
    trace.promptTokens.length,
    trace.blockTokens,
    4,
  );
  const { ttftS } = simulation.run({ trace, keys: traceKeys(trace), timesS }, resizes);
  const slices = {
    came: new Float64Array(endsAtS / sliceS + 1),
    good: new Float64Array(endsAtS / sliceS + 1),
  };
  for (const [i, timeS] of timesS.entries()) {
    const slice = Math.floor(timeS / sliceS);
    slices.came[slice]!++;
    if (ttftS[i]! < setting.sloS) slices.good[slice]!++;
  }
  return slices;
}

/** The first part at its rate, the rest slower, cut at the end. */
function twoRatesS(timesS: Float64Array, factor: number): Float64Array {
  const changed = timesS.map((timeS) =>
    timeS <= loadFallsAtS ? timeS : loadFallsAtS + (timeS - loadFallsAtS) / factor,
  );
  return changed.subarray(0, changed.filter((timeS) => timeS < endsAtS).length);
}

function resultOf(policy: string, runs: readonly Slices[], qps: number, lowQps: number): ElasticityResult {
  const recovered = runs.map(recoveryS);
  const known = recovered.filter((value) => value !== null);
  return {
    policy,
    qps,
    lowQps,
    scaledUpAtS,
    loadFallsAtS,
    scaledDownAtS,
    overloaded: estimate(runs.map((run) => share(run, 30, scaledUpAtS))),
    scaledUp: estimate(runs.map((run, i) => share(run, scaledUpAtS + (recovered[i] ?? 60), loadFallsAtS))),
    scaledDown: estimate(runs.map((run) => share(run, scaledDownAtS, endsAtS))),
    recoveredAfterS: known.length === 0 ? null : estimate(known),
    seedsRecovered: known.length,
  };
}

function share({ came, good }: Slices, fromS: number, toS: number): number {
  let [all, within] = [0, 0];
  for (let slice = Math.ceil(fromS / sliceS); slice < Math.floor(toS / sliceS); slice++) {
    all += came[slice]!;
    within += good[slice]!;
  }
  return all === 0 ? 1 : within / all;
}

function recoveryS({ came, good }: Slices): number | null {
  for (let slice = Math.ceil(scaledUpAtS / sliceS); slice < loadFallsAtS / sliceS; slice++) {
    if (came[slice]! > 0 && good[slice]! >= 0.9 * came[slice]!) return (slice + 1) * sliceS - scaledUpAtS;
  }
  return null;
}
