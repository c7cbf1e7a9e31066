/** One batch's layers as a replay sees them, and the figure that a report has of them. */
import { describe, expect, it } from 'vitest';
import { timelineFigure } from '../../src/cli/replay-timeline.js';
import { LayerWatch, replayMode, type ReplayMode } from '../../src/replay/index.js';
import { figureSvg } from '../../src/report/index.js';
import { cluster, workload } from './support.js';

describe('the layers of a request', () => {
  it.each<ReplayMode>(['basic', 'split'])('%s: arrive, are computed, leave, in this order', async (mode) => {
    const layerWatch = new LayerWatch();
    const { turns } = await replayMode(await workload(3, 4), { ...cluster(), layerWatch }, mode);
    const batch = layerWatch.best!;
    const turn = turns.find(({ request }) => request === batch.request)!;
    expect(batch.layers).toHaveLength(cluster().layout.layers);
    expect(batch.cachedTokens).toBeGreaterThan(0);
    expect(batch.begunUs).toBeGreaterThan(turn.submittedUs);
    let [before, ends] = [0, 0];
    for (const { arrivedUs, computedUs, leftUs } of batch.layers) {
      expect(computedUs).toBeGreaterThanOrEqual(arrivedUs);
      expect(computedUs).toBeGreaterThanOrEqual(before);
      expect(leftUs).toBeGreaterThanOrEqual(computedUs);
      before = computedUs;
      ends = Math.max(ends, leftUs);
    }
    // The first token is there when the last layer has left, and is told a moment later.
    expect((ends - turn.submittedUs) / 1000).toBeLessThanOrEqual(turn.ttftMs + 1);
    const figure = timelineFigure(mode, { turn, batch });
    expect(figureSvg(figure)).toContain('layer 0');
    const series = figure.option['series'] as { data: number[] }[];
    const drawn = series.map(({ data }) => data.at(-1)!).reduce((sum, length) => sum + length, 0);
    const last = batch.layers.at(-1)!;
    expect(drawn).toBeCloseTo((last.leftUs - turn.submittedUs) / 1000, 6);
  });
});
