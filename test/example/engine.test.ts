import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';

const example = fileURLToPath(new URL('../../examples/engine/run.mjs', import.meta.url));

interface Path {
  readonly path: string;
  readonly block_tokens: number;
  readonly tokens_identical: boolean;
  readonly turns: number;
  readonly from_turn_5: { readonly turns: number; readonly hit_rate: number; readonly all_hit: boolean };
}

it('examples/engine: every token is the reference’s, over each path; harmed blocks are found, and would be seen', async () => {
  const { stdout } = await promisify(execFile)(process.execPath, [example, '--small', '--json']);
  const document = JSON.parse(stdout) as { weights: string; paths: Path[]; faults: unknown };
  expect(document.weights).toBe('random');
  const ways = document.paths.map(({ path, block_tokens }) => `${path} ${block_tokens}`);
  const wanted = [16, 64].flatMap((size) =>
    ['prefill-read', 'decode-read', 'split'].map((way) => `${way} ${size}`),
  );
  // The last one: processes, whose decode engine is killed between two turns, and in the midst of one.
  expect(ways).toEqual([...wanted, 'split 16']);
  expect(document.paths.at(-1)).toMatchObject({ way: 'processes', engines_started: 4, attempts: 25 });
  for (const path of document.paths) {
    expect(path).toMatchObject({
      tokens_identical: true,
      turns: 24,
      from_turn_5: { turns: 16, all_hit: true },
    });
    expect(path.from_turn_5.hit_rate).toBeGreaterThan(0.8);
  }
  expect(document.faults).toMatchObject({
    detected: { tokens_identical: true, flipped_blocks: 4 },
    not_detected: { tokens_identical: false, recomputed_blocks: 0 },
  });
});
