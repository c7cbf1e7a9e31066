import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { dualpath } from './support.js';

it('simulates one cluster', async () => {
  const { code, stdout } = await dualpath([
    'simulate',
    'run',
    '32k',
    '--agents',
    '32',
    '--decode',
    '2',
    '--json',
  ]);
  const document = JSON.parse(stdout) as Record<string, unknown>;
  expect(code).toBe(0);
  expect(document).toMatchObject({ workload: '32k', ending: 'complete', mode: 'dualpath', warnings: [] });
  expect(document.cluster).toMatchObject({ hardware: 'hopper', prefill_nodes: 2, decode_nodes: 2 });
});

it.each([
  [['simulate', 'run', '64k', '--prefill', '0'], /prefill nodes are 0/],
  [['simulate', 'run', '64k', '--model', 'ds-28b'], /did you mean ds-27b/],
  [['simulate', 'run', '64k', '--hardware', 'none.json'], /cannot be read/],
  [['plan', '64k', '--nodes', '1'], /none of one role/],
] as const)('%j is bad input', async (argv, message) => {
  const { code, stderr } = await dualpath([...argv]);
  expect(code).toBe(2);
  expect(stderr).toMatch(message);
});

it('writes what there is of an interrupted table, a page and plots', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'dualpath-paper-'));
  const stop = new AbortController();
  stop.abort();
  const page = join(directory, 'paper.html');
  const argv = [
    'simulate',
    'paper',
    '--quick',
    '--json',
    '--threads',
    '1',
    '--report',
    page,
    '--svg',
    directory,
  ];
  const { stdout } = await dualpath(argv, { signal: stop.signal });
  const document = JSON.parse(stdout) as { complete: boolean; rows: Record<string, unknown>[] };
  expect(document.complete).toBe(false);
  expect(Object.keys(document.rows[0]!)).toEqual(
    expect.arrayContaining(['name', 'published', 'ours', 'ratio', 'kind', 'within_tolerance']),
  );
  expect(readFileSync(page, 'utf8')).toContain('<h1>');
  expect(readFileSync(join(directory, 'jct.svg'), 'utf8')).toContain('<svg');
  rmSync(directory, { recursive: true });
});
