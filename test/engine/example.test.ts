import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';

const example = fileURLToPath(new URL('../../examples/prefill-decode.mjs', import.meta.url));

async function run(policy: string): Promise<{ sides: number[][]; hits: number[]; mismatched: number[] }> {
  const { stdout, stderr } = await promisify(execFile)(process.execPath, [example, policy]);
  expect(stderr).toBe('');
  const lines = stdout.trimEnd().split('\n');
  expect(lines).toHaveLength(3);
  const numbers = (line: string, pattern: RegExp): number[] => pattern.exec(line)!.slice(1).map(Number);
  return {
    hits: lines.flatMap((line) => numbers(line, /(\d+) from the store/)),
    sides: lines.map((line) =>
      numbers(line, /(\d+) blocks read by the prefill side, (\d+) by the decode side/),
    ),
    mismatched: lines.flatMap((line) => numbers(line, /(\d+) bytes mismatched/)),
  };
}

it.each([
  [
    'split',
    [
      [0, 0],
      [5, 5],
      [11, 10],
    ],
  ],
  [
    'prefill',
    [
      [0, 0],
      [10, 0],
      [21, 0],
    ],
  ],
] as const)('examples/prefill-decode.mjs %s', async (policy, sides) => {
  expect(await run(policy)).toEqual({ hits: [0, 640, 1344], sides, mismatched: [0, 0, 0] });
});
