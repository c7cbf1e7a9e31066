import { expect, it } from 'vitest';
import { calibrationPoints } from '../../../src/simulator/calibrate.js';
import { paperReport } from '../../../src/simulator/paper/figures.js';
import { derivePaper, paperTasks } from '../../../src/simulator/paper/index.js';
import { row } from '../../../src/simulator/paper/row.js';
import { figureSvg, reportHtml } from '../../../src/report/index.js';

it('has every row when interrupted at once, those of formulas with their values, and says so', async () => {
  const stop = new AbortController();
  stop.abort();
  const result = await derivePaper({ isQuick: false, threads: 1, signal: stop.signal });
  expect(result.complete).toBe(false);
  const simulated = result.rows.filter(({ kind }) => kind === 'fitted' || kind === 'predicted');
  expect(simulated.every(({ ours, withinTolerance }) => ours === null && withinTolerance === null)).toBe(
    true,
  );
  expect(result.rows.filter(({ kind }) => kind === 'arithmetic').every(({ ours }) => ours !== null)).toBe(
    true,
  );
  // Two thirds of fitted and predicted are predicted.
  expect(result.counts.predicted).toBeGreaterThanOrEqual(2 * result.counts.fitted);
  expect(calibrationPoints.length).toBeGreaterThan(4);
  const page = reportHtml(paperReport(result));
  expect(page).toContain('The run was interrupted');
  expect(page.match(/<script/g)).toHaveLength(2);
  expect(page).not.toMatch(/src="http|href="http/);
});

it('needs fewer and shorter runs when quick', () => {
  const ids = (isQuick: boolean): string[] => paperTasks(isQuick).map(({ id }) => id);
  expect(new Set(ids(false)).size).toBe(ids(false).length);
  expect(ids(true).length).toBeLessThan(ids(false).length);
});

it('judges a row by its tolerance and nothing else', () => {
  const base = { name: 'x', section: 'offline', unit: 's', kind: 'predicted', published: 100 } as const;
  expect(row({ ...base, ours: 111, tolerance: 0.12 })).toMatchObject({ ratio: 1.11, withinTolerance: true });
  expect(row({ ...base, ours: 113, tolerance: 0.12 }).withinTolerance).toBe(false);
  expect(row({ ...base, ours: 113 }).withinTolerance).toBeNull();
  expect(row({ ...base, ours: undefined, tolerance: 0.12 })).toMatchObject({
    ours: null,
    withinTolerance: null,
  });
});

it('draws a figure without a browser', () => {
  const option = {
    xAxis: { type: 'value' },
    yAxis: { type: 'value' },
    series: [{ type: 'line', data: [[0, 1]] }],
  };
  expect(figureSvg({ id: 'x', title: 'x', text: 'x', option })).toMatch(/^<svg[^]*<\/svg>$/);
});
