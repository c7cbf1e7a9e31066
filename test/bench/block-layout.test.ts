import { execFile } from 'node:child_process';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';

it('bench/block-layout.mjs compares files with segments at every size', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'dualpath-test-'));
  try {
    const { stdout } = await promisify(execFile)(process.execPath, [
      ...['bench/block-layout.mjs', '--path', directory, '--json', '--warm-only'],
      ...['--rounds', '2', '--slice', '0.02', '--total', String(16 << 20)],
    ]);
    const { results } = JSON.parse(stdout) as { results: { block_bytes: number; load: string }[] };
    const sizes = [64, 256, 1024, 4096, 16384].map((kib) => kib * 1024);
    expect(results.map(({ block_bytes, load }) => [block_bytes, load])).toEqual(
      sizes.flatMap((size) => [
        [size, 'write'],
        [size, 'read warm'],
      ]),
    );
    for (const row of results) {
      expect(row).toMatchObject({
        segments_over_files: expect.any(Number),
        files_bytes_per_s: expect.any(Number),
      });
    }
    expect(await readdir(directory)).toEqual([]);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}, 60_000);
