/** The evaluation as a page: curves of every policy over the grid, and the published figures beside ours. */
import { describe, expect, it } from 'vitest';
import {
  clusterSetting,
  evaluate,
  modelSettings,
  routeEvalReport,
  routeTrace,
} from '../../src/route-eval/index.js';
import { figureSvg } from '../../src/report/index.js';
import { toolAgentSessions } from '../../src/trace/index.js';

describe('a report of an evaluation', () => {
  it('has curves over QPS, goodputs, and a column of what is published', async () => {
    const { maxPromptTokens } = modelSettings['7b'];
    const trace = routeTrace('tool-agent', toolAgentSessions(0), { requests: 200, maxPromptTokens });
    const policies = ['dualmap', 'late-lane', 'least-loaded', 'max-hit'];
    const result = await evaluate(trace, {
      ...{ setting: clusterSetting('7b', 8), warmUpRequests: 20, seeds: 2, grid: [2, 8], policies },
      ...{ sections: ['curves'], scalingReplicas: [], threads: 1 },
    });
    const { figures, tables, introduction } = routeEvalReport(result, 'made by a test');
    const ids = ['capacity', 'ttft-p50', 'ttft-p90', 'ttft-p99', 'hit-rate', 'load-cv'];
    expect(figures.map(({ id }) => id)).toEqual([...ids, 'goodput', 'capacity-ratio']);
    const series = figures[0]!.option['series'] as { name: string; data: [number, number][] }[];
    expect(series.map(({ name }) => name)).toEqual(policies);
    const { attainment } = result.policies[0]!.points[1]!;
    expect(series[0]!.data[1]).toEqual([8, Number((100 * attainment.mean).toFixed(3))]);
    expect(figureSvg(figures[7]!)).toContain('published 2.25');
    const against = tables.find(({ title }) => title === 'Over the best baseline')!.table;
    expect(against.head).toContain('published');
    const paper = against.rows.find(
      ([policy, baseline]) => policy === 'dualmap' && baseline!.startsWith('any'),
    )!;
    expect([paper[3], paper[6]]).toEqual(['1.167 to 1.48', 'up to 2.25']);
    expect(tables.at(-1)).toMatchObject({ title: 'Every rate', table: { rows: { length: 8 } } });
    expect(introduction.at(-1)).toBe('made by a test');
  });
});
