/** A replay as a page: time to first token, and what each node's links carried, mode by mode. */
import type {
  LayerWatch,
  LinkSample,
  LinkSamples,
  ModeSummary,
  NodeTraffic,
  ReplayMode,
  TurnRecord,
} from '../replay/index.js';
import { timelineFigure } from './replay-timeline.js';
import { documentReport, type Figure, type Report } from '../report/index.js';

/** Of one mode. */
export interface ModeRecord {
  readonly turns: TurnRecord[];
  links: LinkSamples | undefined;
  samples: readonly LinkSample[];
  readonly layerWatch: LayerWatch;
}

/** Points of a drawn distribution. */
const maxPoints = 400;

export function replayReport(
  records: ReadonlyMap<ReplayMode, ModeRecord>,
  summaries: ReadonlyMap<ReplayMode, ModeSummary>,
  document: object,
): Report {
  const emulated =
    'HBM, GPUs and link rates are emulated, the disk is real: modes compare under the same limits; nothing here is a measurement of a GPU cluster.';
  const rest = documentReport('dualpath replay', [emulated], document);
  const links = [...records].flatMap(([mode, { samples }]) =>
    samples.length > 1 ? [storageFigure(mode, samples), computeFigure(mode, samples)] : [],
  );
  const layers = [...records].flatMap(
    ([
      mode,
      {
        layerWatch: { best },
        turns,
      },
    ]) => {
      const turn = turns.find(({ request }) => request === best?.request);
      return best === undefined || turn === undefined ? [] : [timelineFigure(mode, { turn, batch: best })];
    },
  );
  return {
    ...rest,
    figures: [ttftFigure(records), ...layers, ...links],
    tables: [{ title: 'Modes', table: modesTable(summaries) }, ...rest.tables],
  };
}

function modesTable(summaries: ReadonlyMap<ReplayMode, ModeSummary>): {
  head: readonly string[];
  rows: readonly (readonly string[])[];
} {
  return {
    head: [
      'mode',
      'elapsed s',
      'prompt tokens/s',
      'TTFT p50 ms',
      'p90',
      'p99',
      'SNIC max/mean',
      'verified bytes',
    ],
    rows: [...summaries].map(([mode, summary]) => [
      mode,
      summary.elapsedS.toFixed(2),
      Math.round(summary.promptTokensPerS).toLocaleString('en'),
      ...[summary.ttftMs.p50, summary.ttftMs.p90, summary.ttftMs.p99].map((ms) => ms.toFixed(1)),
      summary.snicMaxOverMean === null ? '' : summary.snicMaxOverMean.toFixed(2),
      summary.verifiedBytes.toLocaleString('en'),
    ]),
  };
}

function ttftFigure(records: ReadonlyMap<ReplayMode, ModeRecord>): Figure {
  return {
    id: 'ttft',
    title: 'Time to first token',
    text: 'Share of turns whose first token had come after that time.',
    option: {
      tooltip: { trigger: 'axis' },
      legend: { top: 0 },
      xAxis: { type: 'log', name: 'ms', nameLocation: 'middle', nameGap: 28 },
      yAxis: { type: 'value', max: 1 },
      series: [...records].map(([mode, { turns }]) => ({
        type: 'line',
        step: 'end',
        showSymbol: false,
        name: mode,
        data: distribution(turns.map(({ ttftMs }) => ttftMs)),
      })),
    },
  };
}

function distribution(values: readonly number[]): [number, number][] {
  const sorted = [...values].sort((a, b) => a - b);
  const stride = Math.max(1, Math.ceil(sorted.length / maxPoints));
  const points = sorted.map((value, index): [number, number] => [
    Math.max(value, 0.001),
    (index + 1) / sorted.length,
  ]);
  return points.filter((_, index) => index % stride === 0 || index === points.length - 1);
}

const storageFigure = (mode: ReplayMode, samples: readonly LinkSample[]): Figure =>
  linkFigure(`storage-${mode}`, `Storage links, ${mode}`, samples, [
    ['reads', (node) => node.storageReadBytes],
    ['writes', (node) => node.storageWriteBytes],
  ]);

const computeFigure = (mode: ReplayMode, samples: readonly LinkSample[]): Figure =>
  linkFigure(`compute-${mode}`, `Compute network, ${mode}`, samples, [
    ['sends', (node) => node.computeEgressBytes],
    ['receives', (node) => node.computeIngressBytes],
  ]);

function linkFigure(
  id: string,
  title: string,
  samples: readonly LinkSample[],
  ways: readonly (readonly [string, (node: NodeTraffic) => number])[],
): Figure {
  const nodes = samples[0]!.nodes.map(({ node }) => node);
  return {
    id,
    title,
    text: 'What each node carried, averaged between two looks at its counters.',
    option: {
      tooltip: { trigger: 'axis' },
      legend: { top: 0 },
      xAxis: { type: 'value', name: 's', nameLocation: 'middle', nameGap: 28 },
      yAxis: { type: 'value', name: 'MB/s' },
      series: nodes.flatMap((node, index) =>
        ways.map(([way, bytesOf]) => ({
          type: 'line',
          showSymbol: false,
          name: `${node} ${way}`,
          data: rates(samples, (sample) => bytesOf(sample.nodes[index]!)),
        })),
      ),
    },
  };
}

function rates(samples: readonly LinkSample[], bytesOf: (sample: LinkSample) => number): [number, number][] {
  return samples.slice(1).map((sample, index) => {
    const before = samples[index]!;
    const seconds = Math.max(sample.atS - before.atS, 1e-3);
    return [Number(sample.atS.toFixed(2)), (bytesOf(sample) - bytesOf(before)) / 1e6 / seconds];
  });
}
