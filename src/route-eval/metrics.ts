import { quantile } from '../telemetry/index.js';
import type { SimulationTables } from './simulation.js';
import type { RouteTrace } from './trace.js';

/** What one run comes to. Requests of the warm-up are left out of everything but `migrations` and `wrongHits`. */
export interface RunMetrics {
  /** Effective request capacity: share of requests with TTFT below the SLO. */
  readonly attainment: number;
  /** Tokens found cached over prompt tokens, as cut. */
  readonly hitRate: number;
  /** Mean over seconds of sigma over mean of the replicas' pending uncached tokens; null where there was no load. */
  readonly loadVariation: number | null;
  readonly ttftMeanS: number;
  readonly ttftP50S: number;
  readonly ttftP90S: number;
  readonly ttftP99S: number;
  readonly ttftMaxS: number;
  readonly migrations: number;
  readonly wrongHits: number;
}

export function runMetrics(
  trace: RouteTrace,
  tables: SimulationTables,
  options: { readonly warmUpRequests: number; readonly sloS: number },
): RunMetrics {
  const first = Math.min(options.warmUpRequests, tables.ttftS.length - 1);
  const sorted = tables.ttftS.slice(first).sort();
  let [good, sumS, hit, total] = [0, 0, 0, 0];
  for (const ttftS of sorted) {
    if (ttftS < options.sloS) good++;
    sumS += ttftS;
  }
  for (let i = first; i < tables.hitTokens.length; i++) {
    hit += tables.hitTokens[i]!;
    total += trace.promptTokens[i]!;
  }
  const { variations } = tables;
  return {
    attainment: good / sorted.length,
    hitRate: hit / total,
    loadVariation:
      variations.length === 0 ? null : variations.reduce((sum, each) => sum + each, 0) / variations.length,
    ttftMeanS: sumS / sorted.length,
    ttftP50S: quantile(sorted, 0.5),
    ttftP90S: quantile(sorted, 0.9),
    ttftP99S: quantile(sorted, 0.99),
    ttftMaxS: sorted.at(-1)!,
    migrations: tables.migrations,
    wrongHits: tables.wrongHits,
  };
}
