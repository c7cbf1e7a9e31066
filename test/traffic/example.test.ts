/** The example of the base level runs as it stands, on the built package. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { scratchDirectory } from './support.js';

const script = new URL('../../examples/base-level.mjs', import.meta.url).pathname;

function runExample(...args: string[]): string[] {
  const child = spawnSync(process.execPath, [script, ...args], { encoding: 'utf8', timeout: 15_000 });
  expect([child.status, child.signal, child.stderr]).toEqual([0, null, '']);
  return child.stdout.trim().split('\n');
}

// 64 tokens a block: 46 full blocks of 3,000 tokens, 62 of 4,000; 1,024 bytes a token.
const second =
  /^turn 2: 4000 tokens, 2944 from the store, 1056 computed, first token after [\d.]+ ms, 16 new/;

describe('examples/base-level.mjs', () => {
  it('finds in the second turn what the first has saved', () => {
    const lines = runExample();
    expect(lines).toHaveLength(3);
    expect(lines[0]).toMatch(
      /^turn 1: 3000 tokens, 0 from the store, 3000 computed, .* 46 new blocks saved$/,
    );
    expect(lines[1]).toMatch(second);
    expect(lines[2]).toBe(`KV read by attention: ${2944 * 1024} bytes checked, 0 wrong (emulated GPU)`);
  });

  it('finds everything when it runs again on the same store', () => {
    const path = join(scratchDirectory(), 'store');
    runExample(path);
    const lines = runExample(path);
    expect(lines[0]).toMatch(
      /^turn 1: 3000 tokens, 2944 from the store, 56 computed, .* 0 new blocks saved$/,
    );
    expect(lines[1]).toMatch(
      /^turn 2: 4000 tokens, 3968 from the store, 32 computed, .* 0 new blocks saved$/,
    );
    expect(lines[2]).toContain(' 0 wrong ');
  });
});
