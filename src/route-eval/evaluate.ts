import { DualMapPolicy, paperDualMap } from '../router/index.js';
import { arrivalTimesS } from './arrivals.js';
import { analyse, type CapacityComparison, type Comparison, type PolicyCurve, type Runs } from './curves.js';
import { elasticity, type ElasticityResult } from './elasticity.js';
import type { RunMetrics } from './metrics.js';
import { policyEntries, type PolicyKind } from './policies.js';
import { runTasks } from './pool.js';
import { published } from './published.js';
import type { Task } from './run.js';
import { scaling, type ScalingResult } from './scaling.js';
import { Simulation, traceKeys, type ClusterSetting } from './simulation.js';
import { pairedRatio, type Estimate } from './statistics.js';
import { infiniteCacheHitRate, type RouteTrace } from './trace.js';

export const sections = ['curves', 'stale', 'order', 'elasticity', 'scaling'] as const;
export type Section = (typeof sections)[number];

export interface EvaluationOptions {
  readonly setting: ClusterSetting;
  readonly warmUpRequests: number;
  readonly seeds: number;
  /** Seeds count up from here; default 0. */
  readonly firstSeed?: number | undefined;
  /** Rates; default 36 steps up to what an infinite cache could carry, from the ninth on. */
  readonly grid?: readonly number[] | undefined;
  /** Every second of the default rates. */
  readonly isCoarse?: boolean | undefined;
  readonly policies?: readonly string[] | undefined;
  readonly sections: readonly Section[];
  /** Replicas that `scaling` goes to. */
  readonly scalingReplicas: readonly number[];
  readonly threads: number;
  readonly signal?: AbortSignal | undefined;
  readonly onSection?: ((section: Section, tasks: number) => (done: number) => void) | undefined;
}

/** One way for routers to know loads, or one queue order, with the policies that were compared under it. */
export interface ViewResult {
  readonly view: string;
  readonly policies: readonly PolicyCurve[];
  readonly goodputOverBestBaseline: readonly Comparison[];
}

/** TTFT at the highest rate of the grid within DualMap's goodput: beyond it TTFT only measures how long a run was. */
export interface TtftComparison {
  readonly qps: number;
  readonly bestWeak: string;
  readonly bestStrong: string;
  readonly policies: readonly {
    readonly name: string;
    readonly p50S: number;
    readonly p90S: number;
    readonly p99S: number;
    readonly p50OfBestWeak: Estimate;
    readonly p90OfBestWeak: Estimate;
  }[];
}

export interface EvaluationResult {
  readonly emulated: true;
  /** False where an interrupt or a failure left runs out. */
  readonly complete: boolean;
  readonly trace: { readonly name: string; readonly requests: number; readonly meanPromptTokens: number };
  readonly setting: ClusterSetting;
  readonly warmUpRequests: number;
  readonly seeds: number;
  readonly gridQps: readonly number[];
  readonly hitRateBound: number;
  readonly policies: readonly PolicyCurve[];
  readonly goodputOverBestBaseline: readonly Comparison[];
  readonly capacityOverBestBaseline: readonly CapacityComparison[];
  readonly ttftAtDualmapGoodput: TtftComparison | null;
  /** How many requests DualMap keyed by how many blocks, in one run at its goodput. */
  readonly dualmapKeys: readonly { readonly blocks: number; readonly share: number }[];
  readonly stale: readonly ViewResult[];
  readonly queueOrder: readonly ViewResult[];
  readonly elasticity: readonly ElasticityResult[];
  readonly scaling: readonly ScalingResult[];
  readonly published: typeof published;
}

/** Policies of the views beside the exact one. */
const viewPolicies = policyEntries
  .filter(({ kind, name }) => kind !== 'ablation' && kind !== 'other' && name !== 'round-robin')
  .map(({ name }) => name);

export async function evaluate(trace: RouteTrace, options: EvaluationOptions): Promise<EvaluationResult> {
  const grid = options.grid ?? defaultGrid(trace, options);
  const all = options.policies ?? policyEntries.map(({ name }) => name);
  let complete = true;
  const sweep = async (
    section: Section,
    policies: readonly string[],
    setting: ClusterSetting,
  ): Promise<Runs> => {
    const runs = await runGrid(trace, section, policies, grid, setting, options);
    if (runs.metrics.includes(undefined)) complete = false;
    return runs;
  };
  const wants = (section: Section): boolean => options.sections.includes(section);
  const exact = await sweep('curves', wants('curves') ? all : [], options.setting);
  const stale: ViewResult[] = [];
  for (const countsOwn of wants('stale') ? [false, true] : []) {
    const setting = { ...options.setting, stale: { ageS: 1, countsOwn } };
    const view = countsOwn ? '1 s old, own dispatches counted' : '1 s old, own dispatches not counted';
    stale.push(
      viewOf(
        view,
        await sweep(
          'stale',
          viewPolicies.filter((name) => all.includes(name)),
          setting,
        ),
      ),
    );
  }
  const queueOrder: ViewResult[] = [];
  if (wants('order')) {
    const setting = { ...options.setting, queueOrder: 'longest-hit' } as const;
    const names = viewPolicies.filter((name) => all.includes(name));
    queueOrder.push(
      viewOf('longest hit first, as in the released code', await sweep('order', names, setting)),
    );
  }
  const { curves, goodput, capacity } = analyse(exact);
  const dualmapQps = curves.find(({ kind }) => kind === 'dualmap')?.goodputQps.mean;
  const special = runSpecial(trace, options, dualmapQps ?? grid[Math.floor(grid.length / 2)]!);
  return {
    emulated: true,
    complete: complete && options.signal?.aborted !== true,
    trace: {
      name: trace.name,
      requests: trace.promptTokens.length,
      meanPromptTokens: meanOf(trace.promptTokens),
    },
    setting: options.setting,
    warmUpRequests: options.warmUpRequests,
    seeds: options.seeds,
    gridQps: grid,
    hitRateBound: infiniteCacheHitRate(trace, options.warmUpRequests),
    policies: curves,
    goodputOverBestBaseline: goodput,
    capacityOverBestBaseline: capacity,
    ttftAtDualmapGoodput: dualmapQps === undefined ? null : compareTtft(exact, curves, dualmapQps),
    dualmapKeys: dualmapQps === undefined ? [] : keysAt(trace, options, dualmapQps),
    stale,
    queueOrder,
    ...special,
    published,
  };
}

/** The paper, it with limited sub-keys, and our own. */
const scalingPolicies = ['dualmap', 'spread-key', 'late-lane'] as const;

function runSpecial(
  trace: RouteTrace,
  options: EvaluationOptions,
  qps: number,
): Pick<EvaluationResult, 'elasticity' | 'scaling'> {
  const wants = (section: Section): boolean => options.sections.includes(section);
  const kinds: readonly PolicyKind[] = ['dualmap', 'own'];
  const ours = policyEntries.filter(({ kind }) => kinds.includes(kind)).map(({ name }) => name);
  return {
    elasticity: wants('elasticity')
      ? elasticity(trace, { ...options, policies: [...ours, 'min-ttft', 'least-loaded'], qps: 0.85 * qps })
      : [],
    scaling: wants('scaling')
      ? scaling(trace, { ...options, policies: options.policies ?? scalingPolicies, qps })
      : [],
  };
}

function keysAt(trace: RouteTrace, options: EvaluationOptions, qps: number): EvaluationResult['dualmapKeys'] {
  const policy = new DualMapPolicy(paperDualMap);
  const requests = trace.promptTokens.length;
  const timesS = arrivalTimesS(trace, qps, options.firstSeed ?? 0);
  new Simulation(options.setting, policy, requests, trace.blockTokens).run({
    trace,
    keys: traceKeys(trace),
    timesS,
  });
  return [...policy.keyBlocks]
    .map(([blocks, count]) => ({ blocks, share: count / requests }))
    .sort((a, b) => a.blocks - b.blocks);
}

/** Whole seeds first, so that an interrupt leaves whole seeds. */
async function runGrid(
  trace: RouteTrace,
  section: Section,
  policies: readonly string[],
  grid: readonly number[],
  setting: ClusterSetting,
  options: EvaluationOptions,
): Promise<Runs> {
  const { seeds, warmUpRequests } = options;
  const tasks: Task[] = [];
  const places: number[] = [];
  for (let seed = 0; seed < seeds; seed++) {
    for (const [index, policy] of policies.entries()) {
      for (const [rate, qps] of grid.entries()) {
        tasks.push({
          policy,
          qps,
          seed: seed + (options.firstSeed ?? 0),
          setting,
          warmUpRequests,
          copies: 1,
        });
        places.push((index * grid.length + rate) * seeds + seed);
      }
    }
  }
  const onDone = tasks.length > 0 ? options.onSection?.(section, tasks.length) : undefined;
  const results = await runTasks(trace, tasks, { threads: options.threads, signal: options.signal, onDone });
  const metrics = new Array<RunMetrics | undefined>(tasks.length).fill(undefined);
  for (const [i, place] of places.entries()) metrics[place] = results[i];
  return { policies, grid, seeds, metrics };
}

function viewOf(view: string, runs: Runs): ViewResult {
  const { curves, goodput } = analyse(runs);
  return { view, policies: curves, goodputOverBestBaseline: goodput };
}

/** Steps of 1, 2.5 or 5 times a power of ten. */
function defaultGrid(trace: RouteTrace, options: EvaluationOptions): number[] {
  const { prefillSPerToken, replicas } = options.setting;
  const uncached = meanOf(trace.promptTokens) * (1 - infiniteCacheHitRate(trace, options.warmUpRequests));
  const mostQps = replicas / (uncached * prefillSPerToken);
  const wanted = mostQps / 36;
  const power = 10 ** Math.floor(Math.log10(wanted));
  const step = power * ([1, 2.5, 5].find((factor) => factor * power >= wanted) ?? 10);
  const grid: number[] = [];
  const stride = options.isCoarse === true ? 2 : 1;
  for (let i = Math.ceil(mostQps / 4 / step); i * step <= mostQps; i += stride) {
    grid.push(Number((i * step).toFixed(9)));
  }
  return grid;
}

function meanOf(values: Uint32Array): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

function compareTtft(runs: Runs, curves: readonly PolicyCurve[], dualmapQps: number): TtftComparison | null {
  const rate = runs.grid.findLastIndex((qps) => qps <= dualmapQps);
  const best = (kind: PolicyKind): PolicyCurve | undefined =>
    curves
      .filter((curve) => curve.kind === kind)
      .sort((a, b) => b.points[rate]!.attainment.mean - a.points[rate]!.attainment.mean)[0];
  const [weak, strong] = rate < 0 ? [] : [best('weak'), best('strong')];
  if (weak === undefined || strong === undefined) return null;
  const values = (name: string, metric: 'ttftP50S' | 'ttftP90S'): number[] => {
    const first = (runs.policies.indexOf(name) * runs.grid.length + rate) * runs.seeds;
    return runs.metrics
      .slice(first, first + runs.seeds)
      .flatMap((run) => (run === undefined ? [] : [run[metric]]));
  };
  return {
    qps: runs.grid[rate]!,
    bestWeak: weak.name,
    bestStrong: strong.name,
    policies: curves.map(({ name, points }) => ({
      name,
      p50S: points[rate]!.ttftP50S.mean,
      p90S: points[rate]!.ttftP90S.mean,
      p99S: points[rate]!.ttftP99S.mean,
      p50OfBestWeak: pairedRatio(values(name, 'ttftP50S'), values(weak.name, 'ttftP50S')),
      p90OfBestWeak: pairedRatio(values(name, 'ttftP90S'), values(weak.name, 'ttftP90S')),
    })),
  };
}
