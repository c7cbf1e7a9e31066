import { simulatedModes, type SimulatedMode } from '../modes.js';
import { publishedJct } from '../published.js';
import type { Figure, Report } from '../../report/index.js';
import { formatRow, rowHead } from './format.js';
import type { PaperResult } from './index.js';
import { sections, type FigureRow, type Section } from './row.js';

const agents = [512, 1024, 2048, 4096] as const;
const modes = ['basic', 'layerwise', 'round-robin', 'dualpath', 'oracle'] as const;

/** A report of the whole table, for readers who have not read the paper. */
export function paperReport(result: PaperResult): Report {
  const { rows, counts, complete, isQuick } = result;
  const judged = result.withinTolerance + result.outsideTolerance;
  return {
    title: 'DualPath, derived again in simulation',
    introduction: [
      'When a language model serves agents, each request continues a long conversation whose intermediate state, the KV-Cache, ' +
        'is read from storage. Machines are of two kinds: some work through prompts (prefill), others write replies (decode). ' +
        'Usually only the prefill machines read; DualPath lets decode machines read, too, and pass on what they read.',
      'Below, figures that the DualPath paper (arXiv 2602.21548) gives are set beside those of a simulator that drives the scheduler ' +
        'of this package in virtual time. Points are published values, lines and bars are ours.',
      `Four constants were fitted to six published points of one setup; everything else is predicted. Of the rows, ${counts.fitted} are ` +
        `fitted, ${counts.predicted} predicted, ${counts.arithmetic} arithmetic, ${counts.structural} structural. ` +
        `${result.withinTolerance} of ${judged} rows with a tolerance are within it.`,
      ...(isQuick ? ['This is the quick run: the longest simulations were left out.'] : []),
      ...(complete ? [] : ['The run was interrupted: what was not simulated has no value.']),
    ],
    figures: [jctFigure(rows), errorFigure(rows), ...barFigures(rows)],
    tables: (Object.keys(sections) as Section[]).map((section) => ({
      title: sections[section],
      table: { head: rowHead, rows: rows.filter((row) => row.section === section).map(formatRow) },
    })),
  };
}

function jctFigure(rows: readonly FigureRow[]): Figure {
  const oursAt = (count: number, mode: SimulatedMode): number | null =>
    rows.find(({ name }) => name === `JCT, ${count} agents, ${mode}`)?.ours ?? null;
  return {
    id: 'jct',
    title: 'How long a job of so many agents takes',
    text: `Six nodes, DeepSeek-V3.2 660B. ${modes.map((mode) => `${mode}: ${simulatedModes[mode]}`).join('; ')}.`,
    option: {
      tooltip: { trigger: 'axis' },
      legend: { top: 0 },
      xAxis: { type: 'log', name: 'agents', min: 400, max: 5000 },
      yAxis: { type: 'value', name: 'seconds' },
      series: modes.flatMap((mode) => [
        {
          name: mode,
          type: 'line',
          connectNulls: true,
          data: agents.flatMap((count) => {
            const ours = oursAt(count, mode);
            return ours === null ? [] : [[count, Math.round(ours)]];
          }),
        },
        {
          name: `${mode}, published`,
          type: 'scatter',
          symbol: 'diamond',
          symbolSize: 11,
          data: publishedJct
            .filter((point) => point.mode === mode)
            .map(({ agents: count, jctS }) => [count, jctS]),
        },
      ]),
    },
  };
}

function errorFigure(rows: readonly FigureRow[]): Figure {
  const shown = rows.filter(
    ({ kind, signedError, section }) =>
      signedError !== null && (kind === 'fitted' || kind === 'predicted') && section !== 'workload',
  );
  return {
    id: 'errors',
    title: 'How far off',
    text: 'Ours over published, less one, in percent; fitted points and predictions apart.',
    option: {
      tooltip: {},
      legend: { top: 0 },
      grid: { left: 330 },
      xAxis: { type: 'value', name: '%' },
      yAxis: {
        type: 'category',
        data: shown.map(({ name }) => name),
        axisLabel: { fontSize: 9, interval: 0 },
      },
      series: (['fitted', 'predicted'] as const).map((kind) => ({
        name: kind,
        type: 'bar',
        stack: 'error',
        data: shown.map((row) => (row.kind === kind ? Number((100 * row.signedError!).toFixed(1)) : null)),
      })),
    },
  };
}

const barSections = {
  table1: 'KV-Cache read for each unit of computation, by model and context.',
  online: 'Agents arriving at random: what a cluster serves, and how fast.',
  ds27b: 'A smaller model, where storage decides.',
} as const;

function barFigures(rows: readonly FigureRow[]): Figure[] {
  return (Object.keys(barSections) as (keyof typeof barSections)[]).map((section) => {
    const shown = rows.filter((row) => row.section === section && row.ratio !== null);
    return {
      id: section,
      title: sections[section],
      text: `${barSections[section]} Ours over published: 1 is the same.`,
      option: {
        tooltip: {},
        grid: { left: 330 },
        xAxis: { type: 'value', min: 0 },
        yAxis: {
          type: 'category',
          data: shown.map(({ name }) => name),
          axisLabel: { fontSize: 10, interval: 0 },
        },
        series: [
          {
            type: 'bar',
            data: shown.map(({ ratio }) => Number(ratio!.toFixed(3))),
            markLine: { symbol: 'none', data: [{ xAxis: 1 }], label: { show: false } },
          },
        ],
      },
    };
  });
}
