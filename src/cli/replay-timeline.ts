/** One request of a replay as a figure: what each layer's KV did when. */
import type { BatchTimeline, ReplayMode, TurnRecord } from '../replay/index.js';
import type { Figure } from '../report/index.js';

export interface RequestTimeline {
  readonly turn: TurnRecord;
  readonly batch: BatchTimeline;
}

/** A bar's parts in the order of time; what stands between is not drawn. */
const parts = [
  ['', undefined],
  ['waits, and is read from storage', '#b37feb'],
  ['hit KV on its way', '#91caff'],
  ['', undefined],
  ['computed', '#5470c6'],
  ['KV goes to the decode engine', '#91cc75'],
] as const;

export function timelineFigure(mode: ReplayMode, { turn, batch }: RequestTimeline): Figure {
  const rows = rowsOf(turn, batch);
  const { request, ttftMs } = turn;
  const others = batch.requests === 1 ? '' : `, computed with ${batch.requests - 1} other requests`;
  return {
    id: `layers-${mode}`,
    title: `One request, layer by layer, ${mode}`,
    text:
      `${request} on ${batch.engine}: ${batch.cachedTokens} tokens of KV came, ${batch.newTokens} were computed${others}; ` +
      `time to first token ${ttftMs.toFixed(1)} ms. Of the requests watched it has the longest prefix. ` +
      'A layer is computed when its KV is there and the layer before is through.',
    option: {
      tooltip: { trigger: 'item' },
      legend: { top: 0, data: parts.map(([name]) => name).filter((name) => name !== '') },
      grid: { left: 90, right: 30 },
      xAxis: { type: 'value', name: 'ms since its submission', nameLocation: 'middle', nameGap: 28 },
      yAxis: { type: 'category', inverse: true, data: rows.map(({ label }) => label) },
      series: parts.map(([name, color], index) => ({
        type: 'bar',
        stack: 'time',
        name: name === '' ? `between ${index}` : name,
        silent: color === undefined,
        itemStyle: { color: color ?? 'transparent' },
        data: rows.map(({ lengths }) => lengths[index]!),
      })),
    },
  };
}

/** Lengths in ms of the parts, from the submission on. */
function rowsOf(turn: TurnRecord, batch: BatchTimeline): { label: string; lengths: readonly number[] }[] {
  const ms = (us: number): number => Math.max(0, (us - turn.submittedUs) / 1000);
  const begun = ms(batch.begunUs);
  let [arrivedBefore, computedBefore] = [begun, begun];
  const layers = batch.layers.map(({ arrivedUs, computedUs, leftUs }, layer) => {
    const [arrived, computed, left] = [ms(arrivedUs), ms(computedUs), ms(leftUs)];
    const start = Math.min(arrivedBefore, arrived);
    const computing = Math.max(arrived, Math.min(computedBefore, computed));
    arrivedBefore = arrived;
    computedBefore = computed;
    const lengths = [start, 0, arrived - start, computing - arrived, computed - computing, left - computed];
    return { label: `layer ${layer}`, lengths: lengths.map((length) => Math.max(0, length)) };
  });
  return [{ label: 'request', lengths: [0, begun, 0, 0, 0, 0] }, ...layers];
}
