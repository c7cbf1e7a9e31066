/** examples/engine on two hosts, in small: one path, a few turns of a conversation. */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';

const hosts = fileURLToPath(new URL('../../examples/engine/hosts.mjs', import.meta.url));
const timeLimitS = 400;

it(
  'examples/engine on two hosts: tokens that were decoded over KV from the other host are the reference’s',
  async () => {
    const options = JSON.stringify({ turns: 2, paths: ['split-16'], timeLimitS });
    const { stdout } = await promisify(execFile)(process.execPath, [hosts, options]);
    const { paths } = JSON.parse(stdout) as { paths: unknown[] };
    expect(paths).toEqual([
      expect.objectContaining({
        ...{ way: 'two hosts', path: 'split', block_tokens: 16 },
        ...{ tokens_identical: true, largest_logit_difference: 0, turns: 2 },
      }),
    ]);
    expect(paths[0]).toMatchObject({ hits: { from_turn: 2, turns: 1, all_hit: true } });
  },
  1000 * (timeLimitS + 20),
);
