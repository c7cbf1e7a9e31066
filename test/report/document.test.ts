/** A command's document as a page: every value once, results as tables and plots. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { documentReport, figureSvg, reportHtml, writeReport } from '../../src/report/index.js';
import { dualpath } from '../cli/support.js';
import { scratchDirectory } from '../traffic/support.js';

const document = {
  device: 'rxe0',
  results: [
    { size_bytes: 4096, threads: 1, latency_us: { p50: 3.5, p99: 12 }, bandwidth_bytes_per_s: 1e9 },
    { size_bytes: 4096, threads: 2, latency_us: { p50: 4.25, p99: 13 }, bandwidth_bytes_per_s: 1.5e9 },
  ],
  classes: { idle: { p50_us: 1, p99_us: 2 }, flood: { p50_us: 3, p99_us: 4 } },
  lanes: [1, 2],
};

describe('a report of a document', () => {
  const report = documentReport('a <title>', ['text'], document);

  it('has a table for each list of results, and one of what is said once', () => {
    expect(report.tables.map(({ title, table }) => [title, table.head, table.rows.length])).toEqual([
      ['results', ['size_bytes', 'threads', 'latency_us.p50', 'latency_us.p99', 'bandwidth_bytes_per_s'], 2],
      ['classes', ['name', 'p50_us', 'p99_us'], 2],
      ['Run', ['name', 'value'], 2],
    ]);
    expect(report.tables[0]!.table.rows[1]).toEqual(['4,096', '2', '4.250', '13', '1,500,000,000']);
    expect(report.tables[2]!.table.rows).toEqual([
      ['device', 'rxe0'],
      ['lanes', '1, 2'],
    ]);
  });

  it('draws what has the same unit together, over what tells the rows apart', () => {
    expect(report.figures.map(({ title, text }) => [title, text])).toEqual([
      ['results: latency_us', 'By size_bytes, threads.'],
      ['results: bytes_per_s', 'By size_bytes, threads.'],
      ['classes: us', 'By name.'],
    ]);
    for (const figure of report.figures) expect(figureSvg(figure)).toMatch(/^<svg[^]*<\/svg>$/);
  });

  it('is a page that needs nothing else', () => {
    const page = reportHtml(report);
    // Compared as truths: a page is a megabyte.
    expect(page.includes('<title>a &#60;title&#62;</title>')).toBe(true);
    expect(/<(script|link|img)[^>]+(src|href)=/.test(page.replaceAll(/<script>[^]*?<\/script>/g, ''))).toBe(
      false,
    );
    const folder = scratchDirectory();
    writeReport(report, { report: join(folder, 'made/page.html'), svg: join(folder, 'svg') });
    expect(readFileSync(join(folder, 'made/page.html'), 'utf8').includes('<h1>a &#60;title&#62;</h1>')).toBe(
      true,
    );
    expect(readFileSync(join(folder, 'svg/classes-0.svg'), 'utf8')).toContain('</svg>');
  });

  it('of nothing but facts has one table and no plots', () => {
    const { figures, tables } = documentReport('x', [], { a: 1, b: { c: true } });
    expect(figures).toEqual([]);
    expect(tables.map(({ table }) => table.rows)).toEqual([
      [
        ['a', '1'],
        ['b.c', 'true'],
      ],
    ]);
  });
});

it('every benchmark writes one', async () => {
  const page = join(scratchDirectory(), 'lookup.html');
  const { code } = await dualpath([
    ...['bench', 'lookup', '--blocks', '64', '--samples', '3', '--json', '--report', page],
  ]);
  expect(code).toBe(0);
  expect(readFileSync(page, 'utf8').includes('<h1>dualpath bench lookup</h1>')).toBe(true);
}, 60_000);
