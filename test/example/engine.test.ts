import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';

const example = fileURLToPath(new URL('../../examples/engine/run.mjs', import.meta.url));

const everyPath = [16, 64].flatMap((size) =>
  ['prefill-read', 'decode-read', 'split'].map((path) => `${path} ${size}`),
);

interface Path {
  readonly name: string;
  readonly way: string;
  readonly path: string;
  readonly block_tokens: number;
  readonly tokens_identical: boolean;
  readonly turns: number;
  readonly hits: { readonly hit_rate: number };
}

it('examples/engine: every token is the reference’s, over each path; harmed blocks are found, and would be seen', async () => {
  const { stdout } = await promisify(execFile)(process.execPath, [example, '--small', '--json']);
  const document = JSON.parse(stdout) as { weights: string; paths: Path[]; faults: unknown };
  expect(document.weights).toBe('random');
  for (const way of ['one process', 'processes']) {
    const seen = document.paths.filter((path) => path.way === way);
    expect(seen.map(({ path, block_tokens }) => `${path} ${block_tokens}`)).toEqual(everyPath);
    for (const path of seen) {
      const whole = way === 'one process' || (path.path === 'split' && path.block_tokens === 16);
      expect(path).toMatchObject({
        tokens_identical: true,
        turns: whole ? 24 : 6,
        hits: { from_turn: 5, turns: whole ? 16 : 2, all_hit: true },
      });
      expect(path.hits.hit_rate).toBeGreaterThan(0.8);
    }
  }
  expect(document.paths.at(-1)).toMatchObject({
    way: 'one process behind dualpath route',
    tokens_identical: true,
    turns: 12,
    hits: { from_turn: 5, turns: 4, all_hit: true },
  });
  // The decode engine was killed between two turns, and in the midst of one.
  const killed = document.paths.find(({ name }) => name.includes('killed twice'));
  expect(killed).toMatchObject({ engines_started: 4, attempts: 25 });
  expect(document.faults).toMatchObject({
    detected: { tokens_identical: true, flipped_blocks: 4 },
    not_detected: { tokens_identical: false, recomputed_blocks: 0 },
  });
});
