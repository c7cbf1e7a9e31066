/** The guide's code is the examples' code, and the examples run as they stand, on the built package. */
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';

const root = new URL('../../', import.meta.url);
const read = (path: string): string => readFileSync(new URL(path, root), 'utf8');

/** Without indentation: a piece of a function stands at the margin of the guide. */
const lines = (text: string): string =>
  text
    .split('\n')
    .map((line) => line.trim())
    .join('\n')
    .trim();

interface Snippet {
  readonly file: string | undefined;
  readonly code: string;
}

function snippetsOf(document: string): Snippet[] {
  const blocks = /(?:<!-- (\S+) -->\n)?```js\n([\s\S]*?)```/g;
  return [...document.matchAll(blocks)].map(([, file, code]) => ({ file, code: code! }));
}

function run(script: string, ...args: string[]): string[] {
  const child = spawnSync(process.execPath, [new URL(script, root).pathname, ...args], {
    encoding: 'utf8',
    timeout: 15_000,
  });
  expect([child.status, child.signal, child.stderr]).toEqual([0, null, '']);
  return child.stdout.trim().split('\n');
}

describe('docs/embedding.md', () => {
  const snippets = snippetsOf(read('docs/embedding.md'));

  it('shows code of the examples only, word for word', () => {
    expect(snippets.length).toBeGreaterThan(7);
    for (const { file, code } of snippets) {
      expect(file, code).toMatch(/^examples\/embed\/[\w-]+\.mjs$/);
      expect(lines(read(file!)), `${file}:\n${code}`).toContain(lines(code));
    }
  });

  it('names every example, and no other', () => {
    const document = read('docs/embedding.md');
    const examples = readdirSync(new URL('examples/embed/', root)).filter((name) => name !== 'device.mjs');
    for (const example of examples) expect(document).toContain(`examples/embed/${example}`);
    for (const [path] of document.matchAll(/examples\/[\w/-]+\.mjs/g)) expect(() => read(path)).not.toThrow();
  });
});

const nothingWrong = /^(?:rank-\d: )?[1-9]\d+ bytes of KV checked, 0 wrong \(emulated GPU\)$/;

describe('examples/embed', () => {
  it.each(['NHD', 'HND'])('an engine as vLLM, %s', (order) => {
    const output = run('examples/embed/vllm-like.mjs', order);
    expect(output).toEqual([
      'first request: 0 of 1000 tokens from the store',
      'the same prompt again: 960 of 1000 tokens from the store',
      "with 80 tokens in the engine's own cache: 880 more from the store",
      expect.stringMatching(/^ {2}BAD_BLOCK: recomputing tokens \d+ to 960$/),
      'after that: 960 of 1000 tokens from the store',
      expect.stringMatching(nothingWrong),
    ]);
  });

  it('an engine as SGLang', () => {
    expect(run('examples/embed/sglang-like.mjs')).toEqual([
      'first request: 0 of 500 tokens from the store',
      'second request: 480 of 500 tokens from the store',
      expect.stringMatching(nothingWrong),
    ]);
  });

  it('an engine with sparse MLA, two ranks', () => {
    expect(run('examples/embed/mla.mjs')).toEqual([
      'first request: 0 of 1500 tokens from the store, saved by rank: 11 + 12 blocks',
      'second request: 1472 of 1500 tokens from the store, saved by rank: 0 + 0 blocks',
      expect.stringMatching(nothingWrong),
      expect.stringMatching(nothingWrong),
    ]);
  });
});
