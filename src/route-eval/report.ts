import type { Figure, Report, ReportTable } from '../report/index.js';
import type { Point, PolicyCurve } from './curves.js';
import type { EvaluationResult, ViewResult } from './evaluate.js';
import { publishedFor } from './published.js';
import type { Estimate } from './statistics.js';

const metrics = [
  [
    'capacity',
    'Effective request capacity',
    'Share of requests with TTFT within the SLO.',
    '%',
    'attainment',
  ],
  ['ttft-p50', 'TTFT, median', 'Seconds, logarithmic.', 's', 'ttftP50S'],
  ['ttft-p90', 'TTFT, 90th percentile', 'Seconds, logarithmic.', 's', 'ttftP90S'],
  ['ttft-p99', 'TTFT, 99th percentile', 'Seconds, logarithmic.', 's', 'ttftP99S'],
  ['hit-rate', 'Hit rate', 'Cached tokens over prompt tokens.', '%', 'hitRate'],
  ['load-cv', 'Load CV', 'Spread of pending uncached tokens over replicas.', '', 'loadVariation'],
] as const;

/** The evaluation as a page: curves over QPS by policy, and tables that have the published figures beside. */
export function routeEvalReport(result: EvaluationResult, made: string): Report {
  const { trace, setting, seeds, gridQps, published } = result;
  const shown = result.policies.filter(({ kind }) => kind !== 'ablation');
  const views = [...result.stale, ...result.queueOrder];
  return {
    title: `Routing policies on ${trace.name}`,
    introduction: [
      `${trace.requests} requests of ${Math.round(trace.meanPromptTokens)} prompt tokens on average; ${setting.replicas} emulated ` +
        `replicas in virtual time, SLO TTFT < ${setting.sloS} s; ${seeds} seeds, 95 % intervals in brackets.`,
      `Published: ${published.source}. Measured there, emulated here: compare ratios, not times.`,
      ...(result.complete ? [] : ['INTERRUPTED: only seeds that were done.']),
      made,
    ],
    figures: [
      ...(shown.length === 0 ? [] : metrics.map((metric) => curveFigure('', metric, shown, gridQps))),
      ...goodputFigure(shown),
      ...ratioFigure(result),
      ...views.map(({ view, policies }, i) => curveFigure(`view-${i}-`, metrics[0], policies, gridQps, view)),
    ],
    tables: [
      { title: 'Goodput', table: goodputTable(result.policies) },
      { title: 'Over the best baseline', table: comparisonTable(result) },
      { title: 'TTFT at the goodput of dualmap', table: ttftTable(result) },
      { title: 'Hash keys of dualmap', table: keyTable(result) },
      ...views.map((view) => ({ title: view.view, table: viewTable(view) })),
      { title: 'Elasticity', table: elasticityTable(result) },
      { title: 'Scaling', table: scalingTable(result) },
      { title: 'Every rate', table: pointTable(result.policies) },
    ].filter(({ table }) => table.rows.length > 0),
  };
}

const number = (value: number, digits: number): number => Number(value.toFixed(digits));
const percent = (value: number): string => `${(100 * value).toFixed(1)} %`;

function interval({ mean, low, high, seeds }: Estimate, digits: number, factor = 1): string {
  const [middle, from, to] = [mean, low, high].map((value) => (factor * value).toFixed(digits));
  return seeds < 2 ? middle! : `${middle} (${from} to ${to})`;
}

function between(range: { readonly low: number | null; readonly high: number } | undefined): string {
  if (range === undefined) return '';
  return range.low === null ? `up to ${range.high}` : `${range.low} to ${range.high}`;
}

function curveFigure(
  prefix: string,
  [id, title, text, unit, key]: (typeof metrics)[number],
  policies: readonly PolicyCurve[],
  gridQps: readonly number[],
  view = 'exact view of loads',
): Figure {
  const isTime = unit === 's';
  const valueOf = (point: Point): number | null => {
    const mean = point[key]?.mean;
    if (mean === undefined || (isTime && mean <= 0)) return null;
    return number(unit === '%' ? 100 * mean : mean, 3);
  };
  return {
    id: prefix + id,
    title: `${title}, ${view}`,
    text: `${text} By offered QPS; means over seeds.`,
    option: {
      tooltip: { trigger: 'axis' },
      legend: { top: 0, type: 'scroll' },
      xAxis: { type: 'value', name: 'QPS', min: gridQps[0], max: gridQps.at(-1) },
      yAxis: { type: isTime ? 'log' : 'value', name: unit },
      series: policies.map(({ name, points }) => ({
        ...{ name, type: 'line', showSymbol: false },
        data: points.map((point) => [point.qps, valueOf(point)]),
      })),
    },
  };
}

function goodputFigure(policies: readonly PolicyCurve[]): Figure[] {
  if (policies.length === 0) return [];
  const sorted = [...policies].sort((a, b) => a.goodputQps.mean - b.goodputQps.mean);
  return [
    {
      id: 'goodput',
      title: 'Goodput, exact view of loads',
      text: 'The highest rate at which 90 % of requests are within the SLO. Marks: ends of the 95 % interval.',
      option: {
        tooltip: { trigger: 'axis' },
        grid: { left: 150 },
        xAxis: { type: 'value', name: 'QPS' },
        yAxis: { type: 'category', data: sorted.map(({ name }) => name) },
        series: [
          { type: 'bar', name: 'mean', data: sorted.map(({ goodputQps: { mean } }) => number(mean, 3)) },
          ...(['low', 'high'] as const).map((end) => ({
            ...{ type: 'scatter', name: end, symbol: 'rect', symbolSize: [2, 12], color: '#222' },
            data: sorted.map(({ goodputQps }) => number(goodputQps[end], 3)),
          })),
        ],
      },
    },
  ];
}

/** How much more capacity than the best weak baseline at each rate has, with the published best as a line. */
function ratioFigure({ capacityOverBestBaseline, gridQps, trace }: EvaluationResult): Figure[] {
  const weak = capacityOverBestBaseline.filter(({ against }) => against === 'weak');
  if (weak.length === 0) return [];
  const range = publishedFor(trace.name).capacity;
  const ends = range === undefined ? [] : [range.low, range.high].filter((value) => value !== null);
  return [
    {
      id: 'capacity-ratio',
      title: 'Capacity over the best weak baseline',
      text: `At each QPS.${ends.length > 0 ? ' Dashed: the best over QPS as published.' : ''}`,
      option: {
        tooltip: { trigger: 'axis' },
        legend: { top: 0 },
        xAxis: { type: 'value', name: 'QPS', min: gridQps[0], max: gridQps.at(-1) },
        yAxis: { type: 'value', name: 'ratio' },
        series: [
          ...[...new Set(weak.map(({ policy }) => policy))].map((name) => ({
            ...{ name, type: 'line', showSymbol: false },
            data: weak
              .filter(({ policy }) => policy === name)
              .map(({ qps, ratio }) => [qps, number(ratio.mean, 3)]),
          })),
          ...ends.map((value) => ({
            ...{ name: `published ${value}`, type: 'line', showSymbol: false, lineStyle: { type: 'dashed' } },
            data: [gridQps[0], gridQps.at(-1)].map((qps) => [qps, value]),
          })),
        ],
      },
    },
  ];
}

function goodputTable(policies: readonly PolicyCurve[]): ReportTable {
  const sorted = [...policies].sort((a, b) => b.goodputQps.mean - a.goodputQps.mean);
  return {
    head: ['policy', 'kind', 'what', 'goodput QPS', 'hit rate at it'],
    rows: sorted.map(({ name, kind, what, goodputQps, goodputAtLeast, hitRateAtGoodput }) => [
      ...[name, kind, what, (goodputAtLeast > 0 ? '>= ' : '') + interval(goodputQps, 2)],
      percent(hitRateAtGoodput),
    ]),
  };
}

function comparisonTable(result: EvaluationResult): ReportTable {
  const published = publishedFor(result.trace.name);
  return {
    head: ['policy', 'against', 'goodput', 'published', 'most capacity', 'at QPS', 'published'],
    rows: result.goodputOverBestBaseline.map(({ policy, against, baseline, ratio }) => {
      const most = result.capacityOverBestBaseline
        .filter((each) => each.policy === policy && each.against === against)
        .reduce((best, each) => (each.ratio.mean > best.ratio.mean ? each : best));
      // The paper compares itself with the best of its baselines.
      const isPaper = policy === 'dualmap' && against === 'any';
      return [
        ...[policy, `${against}: ${baseline}`, interval(ratio, 3), isPaper ? between(published.goodput) : ''],
        ...[`${interval(most.ratio, 2)} of ${most.baseline}`, String(most.qps)],
        isPaper ? between(published.capacity) : '',
      ];
    }),
  };
}

function ttftTable({ ttftAtDualmapGoodput: ttft, published }: EvaluationResult): ReportTable {
  if (ttft === null) return { head: [], rows: [] };
  const change = ({ mean }: Estimate): string => percent(mean - 1);
  const range = ({ low, high }: { low: number; high: number }): string =>
    `${percent(low)} to ${percent(high)}`;
  return {
    head: [`at ${ttft.qps} QPS`, 'P50 s', 'P90 s', 'P99 s', `P50 against ${ttft.bestWeak}`, 'P90 against it'],
    rows: [
      ...ttft.policies.map(({ name, p50S, p90S, p99S, p50OfBestWeak, p90OfBestWeak }) => [
        ...[name, ...[p50S, p90S, p99S].map((value) => value.toFixed(3))],
        ...[change(p50OfBestWeak), change(p90OfBestWeak)],
      ]),
      ['published, on GPUs', '', '', '', range(published.ttftP50Change), range(published.ttftP90Change)],
    ],
  };
}

function keyTable({ dualmapKeys, trace }: EvaluationResult): ReportTable {
  const published = publishedFor(trace.name).keys ?? [];
  const blocks = new Set([...dualmapKeys, ...published].map((key) => key.blocks));
  const shareOf = (keys: readonly { blocks: number; share: number }[], count: number): string => {
    const key = keys.find((each) => each.blocks === count);
    return key === undefined ? '' : percent(key.share);
  };
  return {
    head: ['blocks', 'share of requests', 'published'],
    rows:
      dualmapKeys.length === 0
        ? []
        : [...blocks]
            .sort((a, b) => a - b)
            .map((count) => [String(count), shareOf(dualmapKeys, count), shareOf(published, count)]),
  };
}

function viewTable({ policies, goodputOverBestBaseline }: ViewResult): ReportTable {
  return {
    head: ['policy', 'goodput QPS', 'over the best weak', 'over the best strong'],
    rows: policies.map(({ name, goodputQps }) => [
      ...[name, interval(goodputQps, 2)],
      ...(['weak', 'strong'] as const).map((against) => {
        const found = goodputOverBestBaseline.find(
          (each) => each.policy === name && each.against === against,
        );
        return found === undefined ? '' : `${interval(found.ratio, 3)} of ${found.baseline}`;
      }),
    ]),
  };
}

function elasticityTable({ elasticity, published }: EvaluationResult): ReportTable {
  if (elasticity.length === 0) return { head: [], rows: [] };
  const { scaledUpAtS, attainmentAfter } = published.elasticity;
  return {
    head: ['policy', 'QPS', 'at 4 replicas', 'at 90 % again after s', 'at 8', 'lower QPS', 'at 4 again'],
    rows: [
      ...elasticity.map((row) => [
        ...[row.policy, row.qps.toFixed(2), interval(row.overloaded, 1, 100)],
        row.recoveredAfterS === null ? 'never' : interval(row.recoveredAfterS, 0),
        ...[interval(row.scaledUp, 1, 100), row.lowQps.toFixed(2), interval(row.scaledDown, 1, 100)],
      ]),
      [`published, grown at ${scaledUpAtS} s`, '', '', '', `above ${100 * attainmentAfter}`, '', ''],
    ],
  };
}

function scalingTable({ scaling, published }: EvaluationResult): ReportTable {
  const { replicas: range, goodput } = published.scaling;
  return {
    head: ['policy', 'replicas', 'requests', 'goodput QPS', 'of linear', 'published'],
    rows: scaling.map(({ policy, replicas, requests, goodputQps, efficiency }) => [
      ...[policy, String(replicas), String(requests), goodputQps.toFixed(1), percent(efficiency)],
      policy === 'dualmap' && replicas <= range[1] ? goodput : '',
    ]),
  };
}

function pointTable(policies: readonly PolicyCurve[]): ReportTable {
  return {
    head: ['policy', 'QPS', 'capacity %', 'hit rate %', 'load CV', 'P50 s', 'P90 s', 'P99 s', 'migrations'],
    rows: policies.flatMap(({ name, points }) =>
      points.map((point) => [
        ...[name, String(point.qps), interval(point.attainment, 1, 100), interval(point.hitRate, 1, 100)],
        point.loadVariation === null ? '' : interval(point.loadVariation, 2),
        ...[point.ttftP50S, point.ttftP90S, point.ttftP99S].map((value) => interval(value, 3)),
        interval(point.migrations, 0),
      ]),
    ),
  };
}
