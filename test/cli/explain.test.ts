import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { dualpath } from './support.js';

const folder = mkdtempSync(join(tmpdir(), 'dualpath-explain-'));
const file = join(folder, 'decisions.jsonl');
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('dualpath explain', () => {
  let lines: { mode: string; request: string; decisions: { kind: string }[] }[];

  beforeAll(async () => {
    const { code } = await dualpath([
      ...['replay', 'examples/traces/agent-sessions-sample.jsonl', '--sessions', '3', '--turns', '3'],
      ...[
        '--scale',
        '0.004',
        '--snic-rate',
        '200MB/s',
        '--prefill-buffer',
        '8MiB',
        '--decode-buffer',
        '16MiB',
      ],
      ...['--prefill-hbm', '8MiB', '--decode-hbm', '16MiB', '--mode', 'dualpath,split'],
      ...['--decisions', file, '--quiet'],
    ]);
    expect(code).toBe(0);
    const text = readFileSync(file, 'utf8').trimEnd();
    lines = text.split('\n').map((line) => JSON.parse(line) as (typeof lines)[number]);
  });

  it('has a line of every request of every mode', () => {
    expect(lines).toHaveLength(2 * 9);
    for (const { decisions } of lines) {
      const kinds = decisions.map(({ kind }) => kind).filter((kind) => kind !== 'wait');
      expect(kinds).toEqual(['submit', 'prefill', 'decode-group', 'decode', 'read', 'assigned', 'end']);
    }
  });

  it('says for people why', async () => {
    const { request } = lines.at(-1)!;
    const { code, stdout } = await dualpath(['explain', request, '--decisions', file]);
    expect(code).toBe(0);
    expect(stdout).toMatch(/mode dualpath[^]*mode split/);
    for (const text of [
      ...['submitted:', 'PE prefill-0-0', 'C1 0, C2 1, C3 0', 'DE group', 'within Z', 'read side'],
      ...['blocks queued', 'assigned to', 'ended well'],
    ])
      expect(stdout).toContain(text);
  });

  it('gives the document, of one mode when asked', async () => {
    const { request } = lines[0]!;
    const { stdout } = await dualpath(['explain', request, '--decisions', file, '--mode', 'split', '--json']);
    const expected = lines.find((line) => line.request === request && line.mode === 'split');
    expect(JSON.parse(stdout)).toEqual({ request, explanations: [expected] });
  });

  it.each([
    [['nobody', '--decisions', file], /nobody.*is not in.*it has/],
    [['x'], /--decisions FILE/],
    [['x', '--decisions', join(folder, 'none')], /cannot read.*none/],
  ])('refuses %j, saying what would do', async (args, message) => {
    const { code, stderr } = await dualpath(['explain', ...args]);
    expect(code).toBe(2);
    expect(stderr).toMatch(message);
  });

  it.each(['no json', '{"request":1}', '{"request":"x","decisions":[{"kind":"prefill","at_s":1}]}'])(
    'says that %s is no line of decisions',
    async (line) => {
      const bad = join(folder, 'bad.jsonl');
      writeFileSync(bad, `${line}\n`);
      const { code, stderr } = await dualpath(['explain', 'x', '--decisions', bad]);
      expect(code).toBe(2);
      expect(stderr).toMatch(/bad\.jsonl:1 is no line of decisions/);
    },
  );
});
