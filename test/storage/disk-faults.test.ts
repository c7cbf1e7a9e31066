/** Disks that are full, read-only or failing: requests end with the error, the store stays sound, work goes on. */
import { spawnSync } from 'node:child_process';
import { readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { DualPathError } from '../../src/errors/index.js';
import { blockLayout } from '../../src/layout/index.js';
import { BlockStore } from '../../src/storage/index.js';
import type { TrafficManager } from '../../src/traffic/index.js';
import type { Runtime } from '../../src/transfer/index.js';
import {
  errorOf,
  headsModel,
  openManager,
  openRuntime,
  PagedMemory,
  saveSequence,
  scratchDirectory,
  tokens,
} from '../traffic/support.js';
import { fileSystems, mount, mountImage } from './mounts.js';

const layout = blockLayout(headsModel(), { blockTokens: 64 });
const blocks = 16;

interface Scene {
  readonly manager: TrafficManager;
  readonly runtime: Runtime;
  readonly store: string;
  /** Stores the nth sequence. */
  save(n: number): Promise<unknown>;
  /** Leading blocks of the nth sequence that are served; every byte of them right. */
  read(n: number): Promise<number>;
  /** Nothing half-written is left, and all that was stored can be read. */
  expectSound(stored: readonly number[]): Promise<void>;
}

function open(path: string): Scene {
  const runtime = openRuntime();
  const manager = openManager(layout, path, { runtime, bufferBlocks: 2 * blocks });
  const memory = new PagedMemory(layout, blocks, 'nhd');
  const geometry = manager.adopt(memory.geometry);
  const blockTable = Array.from({ length: blocks }, (_, i) => i);
  const sequence = (n: number): Uint32Array => tokens(blocks * 64 + 1, 7919 * n);
  const read = async (n: number): Promise<number> => {
    memory.bytes.fill(PagedMemory.untouched);
    const chain = await manager.lookup(sequence(n));
    const { hitBlocks, hitTokens } = chain;
    await manager.load({ chain, geometry, blockTable }).done;
    expect(memory.firstDifference(blockTable, hitTokens, n)).toBe(-1);
    chain.release();
    return hitBlocks;
  };
  return {
    ...{ manager, runtime, store: join(path, 'store'), read },
    save: async (n) => (await saveSequence(manager, sequence(n), n)).release(),
    expectSound: async (stored) => {
      // Nobody waits for what is unlinked.
      await expect.poll(() => readdirSync(join(path, 'store', 'tmp'))).toEqual([]);
      for (const n of stored) expect(await read(n)).toBe(blocks);
      expect(manager.engine.statistics().badBlocks).toBe(0);
    },
  };
}

/** Saves sequences until one fails. */
async function fillUp(scene: Scene): Promise<{ stored: number[]; error: DualPathError }> {
  const stored: number[] = [];
  for (let n = 1; n < 1000; n++) {
    const outcome = await scene.save(n).then(
      () => undefined,
      (error: unknown) => error as DualPathError,
    );
    if (outcome !== undefined) return { stored, error: outcome };
    stored.push(n);
  }
  throw new Error('the file system never filled up');
}

describe.each(fileSystems)('%s', (type) => {
  it('that is full: NO_SPACE, with the file; what fits afterwards is stored', async (context) => {
    const disk = mount(context, type, 6144);
    const scene = open(disk.path);
    const filler = join(disk.path, 'filler');
    writeFileSync(filler, new Uint8Array(1 << 20));
    const { stored, error } = await fillUp(scene);
    expect(stored.length).toBeGreaterThan(1);
    expect(error).toMatchObject({ code: 'NO_SPACE', details: { errno: 28, op: 'write' } });
    expect(error.details['path']).toContain(join(scene.store, 'blocks'));
    expect(error.message).toMatch(/ENOSPC\); free space or inodes on its file system/);
    await scene.expectSound(stored);
    // A full disk stays one.
    const failed = stored.length + 1;
    expect((await errorOf(scene.save(failed))).code).toBe('NO_SPACE');
    rmSync(filler);
    await scene.save(failed);
    await scene.expectSound([...stored, failed]);
  });

  it('that is full: a new store is refused, and opens once there is room', async (context) => {
    const disk = mount(context, type, 4096);
    const filler = join(disk.path, 'filler');
    spawnSync('dd', ['if=/dev/zero', `of=${filler}`, 'bs=4k']);
    const path = join(disk.path, 'store');
    const error = await errorOf(() => BlockStore.open({ path, layout }));
    expect(error).toMatchObject({ code: 'NO_SPACE', details: { errno: 28 } });
    expect(error.message).toContain(path);
    rmSync(filler);
    BlockStore.open({ path, layout });
  });

  it('that is read-only: a store is refused', async (context) => {
    const disk = mount(context, type, 4096);
    disk.remount('ro');
    const path = join(disk.path, 'store');
    const error = await errorOf(() => BlockStore.open({ path, layout }));
    expect(error).toMatchObject({ code: 'STORAGE_IO', details: { errno: 30 } });
    expect(error.message).toMatch(/writable file system/);
    disk.remount('rw');
    BlockStore.open({ path, layout });
  });
});

describe('a file system that turns read-only in the midst', () => {
  it('writes say so, reads go on; repaired, it serves what was stored and takes more', async (context) => {
    const disk = mountImage(context, 8192);
    const scene = open(disk.path);
    await scene.save(1);
    disk.fail();
    const error = await errorOf(scene.save(2));
    expect(error).toMatchObject({ code: 'STORAGE_IO', details: { errno: 30, op: 'write' } });
    expect(error.details['path']).toContain(join(scene.store, 'blocks'));
    expect(error.message).toMatch(/EROFS\); make its file system writable again/);
    expect(await scene.read(1)).toBe(blocks);
    await scene.manager.close();
    const after = open(disk.repaired().path);
    expect(await after.read(1)).toBe(blocks);
    await after.save(2);
    await after.expectSound([1, 2]);
  });
});

const injected: [name: string, errno: number, code: string, remedy: RegExp][] = [
  ['EIO', 5, 'STORAGE_IO', /the device failed.*dualpath store verify/],
  ['EDQUOT', 122, 'NO_SPACE', /raise the quota/],
  ['EMFILE', 24, 'STORAGE_IO', /ulimit -n/],
  ['ENFILE', 23, 'STORAGE_IO', /fs\.file-max/],
];

describe.each(injected)('%s, injected', (name, errno, code, remedy) => {
  // One store for all: its 256 directories take their time.
  const path = scratchDirectory(afterAll);

  it.each([1, 7, 16])('at write %i: the save ends with it, the next one is good', async (nth) => {
    const scene = open(path);
    await scene.save(1);
    scene.runtime.setFaults({ writeErrno: errno, writeErrorAfter: nth });
    const error = await errorOf(scene.save(2 + nth));
    expect(error).toMatchObject({ code, details: { errno, op: 'write', call: 'write' } });
    expect(error.details['path']).toContain(scene.store);
    expect(error.message).toContain(name);
    expect(error.message).toMatch(remedy);
    await scene.expectSound([1]);
    await scene.save(2 + nth);
    await scene.expectSound([1, 2 + nth]);
  });

  it('at a read: the load ends with it and says from where on, the next one is good', async () => {
    const scene = open(path);
    await scene.save(1);
    scene.runtime.setFaults({ readErrno: errno, readErrorAfter: 5 });
    const error = await errorOf(scene.read(1));
    expect(error).toMatchObject({ code, details: { errno, op: 'read', call: 'read', blocks } });
    expect(error.details['failed_from_block']).toBeLessThan(blocks);
    expect(error.message).toMatch(remedy);
    await scene.expectSound([1]);
  });
});

// UBSan looks at an object by way of a pipe: with no files left it takes sound ones for broken.
const sanitized = process.env.UBSAN_OPTIONS !== undefined;

describe('no more open files', () => {
  it.skipIf(sanitized)('is an error that says so, and over when there are some again', () => {
    const { status, stdout, stderr } = spawnSync(
      process.execPath,
      [new URL('./open-files-process.mjs', import.meta.url).pathname, scratchDirectory()],
      { encoding: 'utf8', timeout: 20_000 },
    );
    expect([status, stderr]).toEqual([0, '']);
    const report = JSON.parse(stdout) as Record<'open' | 'save' | 'load' | 'after', string | number>;
    expect(report.open).toMatch(/^STORAGE_IO 24 .*ulimit -n/);
    // Where a ring's own table holds the files they go on, otherwise they end with the same error.
    expect(report.save).toMatch(/^done$|^STORAGE_IO 24 .*ulimit -n/);
    expect(report.load).toMatch(/^done$|^STORAGE_IO 24 .*ulimit -n/);
    expect(report.after).toBe('done');
  });
});
