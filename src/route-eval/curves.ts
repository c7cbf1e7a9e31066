import type { RunMetrics } from './metrics.js';
import { policyOf, type PolicyKind } from './policies.js';
import { estimate, goodputOf, pairedRatio, type Estimate } from './statistics.js';

/** Every metric at one rate, over seeds. */
export interface Point {
  readonly qps: number;
  readonly attainment: Estimate;
  readonly hitRate: Estimate;
  readonly loadVariation: Estimate | null;
  readonly ttftMeanS: Estimate;
  readonly ttftP50S: Estimate;
  readonly ttftP90S: Estimate;
  readonly ttftP99S: Estimate;
  readonly ttftMaxS: Estimate;
  readonly migrations: Estimate;
  readonly wrongHits: number;
}

export interface PolicyCurve {
  readonly name: string;
  readonly kind: PolicyKind;
  readonly what: string;
  readonly points: readonly Point[];
  readonly goodputQps: Estimate;
  /** Seeds in which the target was still met at the highest rate: their goodput is at least that. */
  readonly goodputAtLeast: number;
  /** At the policy's own goodput, linearly between rates. */
  readonly hitRateAtGoodput: number;
}

/** All runs of one view: [policy][rate][seed]; what was not run is undefined. */
export interface Runs {
  readonly policies: readonly string[];
  readonly grid: readonly number[];
  readonly seeds: number;
  readonly metrics: readonly (RunMetrics | undefined)[];
}

/** One against another, seed by seed. */
export interface Comparison {
  readonly policy: string;
  readonly baseline: string;
  readonly against: 'weak' | 'strong' | 'any';
  readonly ratio: Estimate;
}

export interface CapacityComparison extends Comparison {
  readonly qps: number;
}

/** The metrics of a policy: [rate][seed], only seeds that were run at every rate. */
class Table {
  readonly #rows: RunMetrics[][];

  constructor(runs: Runs, policy: number) {
    const at = (rate: number, seed: number): RunMetrics | undefined =>
      runs.metrics[(policy * runs.grid.length + rate) * runs.seeds + seed];
    const seeds = Array.from({ length: runs.seeds }, (_, seed) => seed).filter((seed) =>
      runs.grid.every((_, rate) => at(rate, seed) !== undefined),
    );
    this.#rows = runs.grid.map((_, rate) => seeds.map((seed) => at(rate, seed)!));
  }

  get seeds(): number {
    return this.#rows[0]?.length ?? 0;
  }

  values(rate: number, metric: keyof RunMetrics): number[] {
    return this.#rows[rate]!.map((metrics) => metrics[metric]).filter((value) => value !== null);
  }

  goodputs(grid: readonly number[]): { qps: number; isAtLeast: boolean }[] {
    return Array.from({ length: this.seeds }, (_, seed) =>
      goodputOf(
        grid,
        this.#rows.map((row) => row[seed]!.attainment),
      ),
    );
  }
}

/** What a view's runs come to. Policies of which no seed is complete are left out. */
export function analyse(runs: Runs): {
  curves: PolicyCurve[];
  goodput: Comparison[];
  capacity: CapacityComparison[];
} {
  const tables = new Map<string, Table>();
  for (const [index, policy] of runs.policies.entries()) {
    const table = new Table(runs, index);
    if (table.seeds > 0) tables.set(policy, table);
  }
  const curves = [...tables].map(([policy, table]) => curveOf(policy, table, runs.grid));
  const goodput: Comparison[] = [];
  const capacity: CapacityComparison[] = [];
  for (const curve of curves.filter(({ kind }) => kind === 'dualmap' || kind === 'own')) {
    for (const against of ['weak', 'strong', 'any'] as const) {
      const baselines = curves.filter((each) => isBaseline(each.kind, against));
      if (baselines.length === 0) continue;
      const [own, grid] = [tables.get(curve.name)!, runs.grid];
      const best = greatest(baselines, ({ goodputQps }) => goodputQps.mean);
      const goodputs = (table: Table): number[] => table.goodputs(grid).map(({ qps }) => qps);
      goodput.push({
        policy: curve.name,
        baseline: best.name,
        against,
        ratio: pairedRatio(goodputs(own), goodputs(tables.get(best.name)!)),
      });
      for (const [rate, qps] of grid.entries()) {
        const bestHere = greatest(baselines, ({ points }) => points[rate]!.attainment.mean);
        const under = tables.get(bestHere.name)!.values(rate, 'attainment');
        const ratio = pairedRatio(own.values(rate, 'attainment'), under);
        capacity.push({ policy: curve.name, baseline: bestHere.name, against, qps, ratio });
      }
    }
  }
  return { curves, goodput, capacity };
}

function isBaseline(kind: PolicyKind, against: Comparison['against']): boolean {
  return kind === against || (against === 'any' && ['weak', 'strong', 'other'].includes(kind));
}

function greatest<T>(items: readonly T[], value: (item: T) => number): T {
  return items.reduce((best, item) => (value(item) > value(best) ? item : best));
}

function curveOf(name: string, table: Table, grid: readonly number[]): PolicyCurve {
  const { kind, what } = policyOf(name);
  const goodputs = table.goodputs(grid);
  const points = grid.map((qps, rate) => pointOf(qps, rate, table));
  const goodputQps = estimate(goodputs.map(({ qps }) => qps));
  return {
    name,
    kind,
    what,
    points,
    goodputQps,
    goodputAtLeast: goodputs.filter(({ isAtLeast }) => isAtLeast).length,
    hitRateAtGoodput: hitRateAt(points, goodputQps.mean),
  };
}

function pointOf(qps: number, rate: number, table: Table): Point {
  const of = (metric: keyof RunMetrics): Estimate => estimate(table.values(rate, metric));
  return {
    qps,
    attainment: of('attainment'),
    hitRate: of('hitRate'),
    loadVariation: table.values(rate, 'loadVariation').length === 0 ? null : of('loadVariation'),
    ttftMeanS: of('ttftMeanS'),
    ttftP50S: of('ttftP50S'),
    ttftP90S: of('ttftP90S'),
    ttftP99S: of('ttftP99S'),
    ttftMaxS: of('ttftMaxS'),
    migrations: of('migrations'),
    wrongHits: table.values(rate, 'wrongHits').reduce((sum, wrong) => sum + wrong, 0),
  };
}

function hitRateAt(points: readonly Point[], qps: number): number {
  const above = points.findIndex((point) => point.qps >= qps);
  const upper = points[above < 0 ? points.length - 1 : above]!;
  const lower = points[Math.max(0, above < 0 ? points.length - 1 : above - 1)]!;
  const share = upper.qps === lower.qps ? 0 : (qps - lower.qps) / (upper.qps - lower.qps);
  return lower.hitRate.mean + Math.max(0, share) * (upper.hitRate.mean - lower.hitRate.mean);
}
