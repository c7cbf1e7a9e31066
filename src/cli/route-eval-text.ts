import type { Comparison, Estimate, EvaluationResult, PolicyCurve, ViewResult } from '../route-eval/index.js';
import { formatCount, formatDuration, formatPercent, renderTable } from '../telemetry/index.js';

/** The evaluation for people: goodputs, comparisons, TTFT, and what the other sections found. */
export function routeEvalText(result: EvaluationResult): string {
  const { trace, setting, seeds, gridQps } = result;
  const parts = [
    `${trace.name}: ${formatCount(trace.requests)} requests, ${formatCount(trace.meanPromptTokens)} prompt tokens on ` +
      `average; ${setting.replicas} emulated replicas, SLO TTFT < ${setting.sloS} s; ${seeds} seeds, 95 % intervals`,
    result.complete ? '' : 'INTERRUPTED: only whole seeds that were done',
    curveTable('exact view', result.policies, gridQps),
    `an infinite cache hits ${formatPercent(result.hitRateBound)}`,
    keysText(result),
    comparisonTable(result),
    ttftTable(result),
    ...result.stale.map((view) => viewTable(`loads ${view.view}`, view, gridQps)),
    ...result.queueOrder.map((view) => viewTable(view.view, view, gridQps)),
    elasticityTable(result),
    scalingTable(result),
  ];
  return parts.filter((part) => part !== '').join('\n');
}

function interval({ mean, low, high }: Estimate, digits: number): string {
  return `${mean.toFixed(digits)} (${low.toFixed(digits)} to ${high.toFixed(digits)})`;
}

function curveTable(title: string, policies: readonly PolicyCurve[], gridQps: readonly number[]): string {
  if (policies.length === 0) return '';
  const sorted = [...policies].sort((a, b) => b.goodputQps.mean - a.goodputQps.mean);
  const reference = policies.find(({ kind }) => kind === 'dualmap')?.goodputQps.mean ?? Infinity;
  const rate = Math.max(
    0,
    gridQps.findLastIndex((qps) => qps <= reference),
  );
  const at = `at ${gridQps[rate]} QPS`;
  return renderTable({
    head: [title, '', 'goodput QPS', 'hit rate', `capacity ${at}`, 'P50', 'P90', 'P99', 'load CV'],
    rows: sorted.map(({ name, kind, goodputQps, goodputAtLeast, hitRateAtGoodput, points }) => {
      const point = points[rate]!;
      return [
        name,
        kind,
        (goodputAtLeast > 0 ? '>= ' : '') + interval(goodputQps, 2),
        formatPercent(hitRateAtGoodput),
        formatPercent(point.attainment.mean),
        formatDuration(point.ttftP50S.mean),
        formatDuration(point.ttftP90S.mean),
        formatDuration(point.ttftP99S.mean),
        point.loadVariation === null ? '' : point.loadVariation.mean.toFixed(2),
      ];
    }),
  });
}

function keysText({ dualmapKeys }: EvaluationResult): string {
  const main = dualmapKeys.filter(({ share }) => share >= 0.01);
  if (main.length === 0) return '';
  return `hash keys of dualmap: ${main.map(({ blocks, share }) => `${blocks} blocks ${formatPercent(share)}`).join(', ')}`;
}

function comparisonTable(result: EvaluationResult): string {
  const { goodputOverBestBaseline, capacityOverBestBaseline } = result;
  if (goodputOverBestBaseline.length === 0) return '';
  return renderTable({
    head: ['over the best baseline', 'against', 'goodput', 'most capacity', 'at QPS'],
    rows: goodputOverBestBaseline.map(({ policy, against, baseline, ratio }) => {
      const most = capacityOverBestBaseline
        .filter((each) => each.policy === policy && each.against === against)
        .reduce((best, each) => (each.ratio.mean > best.ratio.mean ? each : best));
      const capacity = `${interval(most.ratio, 2)} of ${most.baseline}`;
      return [policy, `${against}: ${baseline}`, interval(ratio, 3), capacity, String(most.qps)];
    }),
  });
}

function ttftTable({ ttftAtDualmapGoodput: ttft, published }: EvaluationResult): string {
  if (ttft === null) return '';
  const change = ({ mean }: Estimate): string => `${((mean - 1) * 100).toFixed(1)} %`;
  const publishedChange = ({ low, high }: { low: number; high: number }): string =>
    `${(low * 100).toFixed(1)} to ${(high * 100).toFixed(1)} %`;
  return renderTable({
    head: [`TTFT at ${ttft.qps} QPS`, 'P50', 'P90', 'P99', `P50 against ${ttft.bestWeak}`, 'P90'],
    rows: [
      ...ttft.policies.map(({ name, p50S, p90S, p99S, p50OfBestWeak, p90OfBestWeak }) => [
        name,
        formatDuration(p50S),
        formatDuration(p90S),
        formatDuration(p99S),
        change(p50OfBestWeak),
        change(p90OfBestWeak),
      ]),
      [
        'published, on GPUs',
        '',
        '',
        '',
        publishedChange(published.ttftP50Change),
        publishedChange(published.ttftP90Change),
      ],
    ],
  });
}

function viewTable(title: string, view: ViewResult, gridQps: readonly number[]): string {
  const ratio = ({ policy, against, baseline, ratio: its }: Comparison): string =>
    `  ${policy}: ${interval(its, 3)} of ${baseline} (best ${against})`;
  return [curveTable(title, view.policies, gridQps), ...view.goodputOverBestBaseline.map(ratio)].join('\n');
}

function elasticityTable({ elasticity }: EvaluationResult): string {
  const first = elasticity[0];
  if (first === undefined) return '';
  return renderTable({
    head: [
      `4 replicas, 8 from ${first.scaledUpAtS} s, 4 from ${first.scaledDownAtS} s`,
      `at 4, ${first.qps.toFixed(1)} QPS`,
      'at 90 % again after',
      'at 8',
      `at 4, ${first.lowQps.toFixed(1)} QPS`,
    ],
    rows: elasticity.map(({ policy, overloaded, recoveredAfterS, scaledUp, scaledDown }) => [
      policy,
      formatPercent(overloaded.mean),
      recoveredAfterS === null ? 'never' : formatDuration(recoveredAfterS.mean),
      formatPercent(scaledUp.mean),
      formatPercent(scaledDown.mean),
    ]),
  });
}

function scalingTable({ scaling }: EvaluationResult): string {
  if (scaling.length === 0) return '';
  return renderTable({
    head: ['scaling', 'replicas', 'requests', 'goodput QPS', 'of linear'],
    rows: scaling.map(({ policy, replicas, requests, goodputQps, efficiency }) => [
      policy,
      formatCount(replicas),
      formatCount(requests),
      goodputQps.toFixed(1),
      formatPercent(efficiency),
    ]),
  });
}
