import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { benchStorage, type StorageOptions } from '../../src/bench/index.js';

const small: StorageOptions = {
  sizes: [4096, 65536],
  fileBytes: 2 << 20,
  depth: 8,
  sliceS: 0.05,
  maxPairs: 2,
};

describe('benchStorage', () => {
  let directory = '';
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'dualpath-test-'));
  });
  afterAll(() => rm(directory, { recursive: true, force: true }));

  it('measures every size beside fio and leaves nothing behind', async () => {
    const steps: string[] = [];
    const result = await benchStorage({
      ...small,
      directory,
      compare: 'fio',
      onProgress: (step) => steps.push(step),
    });
    expect(result.results.map(({ sizeBytes }) => sizeBytes)).toEqual(small.sizes);
    for (const size of result.results) {
      expect(size.ratio).toBeGreaterThan(0);
      expect(size.ratioHalfWidth).toBeGreaterThan(0);
      expect(size.converged).toBe(size.ratioHalfWidth! <= 0.02);
      expect(size.cpuRatio).toBeCloseTo(size.cpuNsPerByte / size.fio!.cpuNsPerByte, 9);
      expect(size.registeredShare).toBe(size.storageIo === 'io_uring' ? 1 : 0);
      expect(size.verified.mismatches).toBe(0);
      expect(size.checksumNsPerByte).toBeGreaterThan(0);
      expect(size.store.fileBytes).toBe(Math.max(8192, size.sizeBytes));
      expect(size.store.bytesPerS).toBeGreaterThan(0);
    }
    expect(result.fioVersion).toMatch(/^fio-/);
    expect(steps.some((step) => step.includes('pair 2 of at most 2'))).toBe(true);
    expect(await readdir(directory)).toEqual([]);
  });

  it('measures the pool of threads, without fio', async () => {
    const { results, fioVersion } = await benchStorage({
      ...small,
      sizes: [8192],
      directory,
      storageIo: 'thread_pool',
    });
    expect(results[0]).toMatchObject({ storageIo: 'thread_pool', registeredShare: 0, ratio: undefined });
    expect(results[0]!.store.registeredShare).toBe(0);
    expect(fioVersion).toBeUndefined();
  });

  it('can be interrupted, and cleans up', async () => {
    const controller = new AbortController();
    const run = benchStorage({
      ...small,
      directory,
      signal: controller.signal,
      onProgress: (step) => {
        if (step.includes('verified')) controller.abort();
      },
    });
    await expect(run).rejects.toThrow();
    expect(await readdir(directory)).toEqual([]);
  });

  it.each([
    [{ sizes: [4097] }, 'size is 4097'],
    [{ sizes: [] }, 'at least one size'],
    [{ fileBytes: 8192 }, 'fileBytes is 8192'],
    [{ depth: 129 }, 'depth is 129'],
    [{ sliceS: 0 }, 'sliceS is 0'],
    [{ maxPairs: 1 }, 'maxPairs is 1'],
    [{ directory: '/dev/null' }, 'no folder can be made in /dev/null'],
  ])('refuses %o', async (wrong, message) => {
    await expect(benchStorage({ ...small, directory, ...wrong })).rejects.toThrow(message);
  });
});
