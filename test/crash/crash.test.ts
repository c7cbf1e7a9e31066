/** A few kills of `npm run test:crash`, and that its checks can fail. */
import { readdirSync, rmSync, statSync, truncateSync, writeFileSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { scratchDirectory } from '../traffic/support.js';
import { KillRun } from './kills.mjs';

const capacityBytes = 1 << 18;

/** A seed from the day, so that CI sees ever new moments; it stands in the test's failure. */
const seed = Math.floor(Date.now() / 86_400_000);

function blockFiles(path: string): string[] {
  return readdirSync(join(path, 'blocks'), { recursive: true, encoding: 'utf8' })
    .map((name) => join(path, 'blocks', name))
    .filter((file) => statSync(file).isFile());
}

describe('a store whose writers are killed', () => {
  it.each([
    ['without a limit', {}],
    ['while they evict', { capacityBytes }],
  ])('%s is sound every time', { timeout: 60_000 }, async (_, options) => {
    const run = new KillRun({ directory: scratchDirectory(), seed, ...options });
    for (let i = 0; i < 5; i++) await run.kill();
    await run.end();
    expect({ seed, findings: run.findings }).toEqual({ seed, findings: [] });
    expect(run.kills).toBe(5);
    expect(run.acknowledgedBlocks).toBeGreaterThan(0);
    expect(run.readBlocks).toBeGreaterThan(0);
    expect(run.evictedBlocks > 0).toBe('capacityBytes' in options);
  });

  const harms: [what: string, harm: (file: string) => void, finding: RegExp][] = [
    ['an acknowledged block that is gone', (file) => rmSync(file), /blocks of/],
    ['a torn block', (file) => truncateSync(file, 5000), /bad blocks/],
    [
      'a flipped byte',
      (file) => {
        const bytes = readFileSync(file);
        bytes[5000]! ^= 1;
        writeFileSync(file, bytes);
      },
      /bad blocks/,
    ],
  ];
  it('of which a block is gone, torn or wrong has a finding each', { timeout: 60_000 }, async () => {
    const run = new KillRun({ directory: scratchDirectory(), seed });
    while (run.acknowledgedBlocks === 0) await run.kill();
    await run.end();
    expect(run.findings).toEqual([]);
    for (const [what, harm, finding] of harms) {
      for (const file of blockFiles(run.path).slice(0, 3)) harm(file);
      const before = run.findings.length;
      await run.end();
      const found = run.findings.slice(before);
      expect([what, found.some((text) => finding.test(text))]).toEqual([what, true]);
    }
  });
});
