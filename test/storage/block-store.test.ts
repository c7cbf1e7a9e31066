import { once } from 'node:events';
import { chmodSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { describe, expect, it } from 'vitest';
import { blockLayout } from '../../src/layout/index.js';
import { BlockStore } from '../../src/storage/index.js';
import {
  errorOf,
  headsLayout,
  openManager,
  preset,
  saveSequence,
  scratchDirectory,
  tokens,
} from '../traffic/support.js';

const layout = headsLayout();

describe('BlockStore', () => {
  it('is made with its parents, and says what its files look like', () => {
    const path = join(scratchDirectory(), 'a', 'b', 'store');
    const store = BlockStore.open({ path, layout });
    expect(statSync(path).isDirectory()).toBe(true);
    // A header page, and the payload rounded up to whole pages.
    expect(store.file).toMatchObject({
      headerBytes: 4096,
      payloadBytes: layout.fullBlockBytes,
      fileBytes: 4096 + 4096 * Math.ceil(layout.fullBlockBytes / 4096),
    });
    expect(store.statistics()).toMatchObject({ blocks: 0, bytes: 0, quarantined: 0 });
  });

  it('keeps its blocks; opened again it knows them', async () => {
    const path = scratchDirectory();
    await saveSequence(openManager(layout, path), tokens(20), 1);
    const store = BlockStore.open({ path: join(path, 'store'), layout });
    expect(store.statistics()).toMatchObject({ blocks: 5, bytes: 5 * store.file.fileBytes, probes: 0 });
    expect((await openManager(layout, path, { store }).lookup(tokens(20))).hitBlocks).toBe(4);
  });

  it('opens off this thread what it opens on it, and refuses the same', async () => {
    const path = scratchDirectory();
    await saveSequence(openManager(layout, path), tokens(20), 1);
    const options = { path: join(path, 'store'), layout, salt: new Uint8Array() };
    const [here, there] = [BlockStore.open(options), await BlockStore.openAsync(options)];
    expect([there.file, there.statistics()]).toEqual([here.file, here.statistics()]);
    expect((await openManager(layout, path, { store: there }).lookup(tokens(20))).hitBlocks).toBe(4);
    for (const wrong of [
      { layout: headsLayout(2) },
      { indexCapacity: 0 },
      { namespace: '' },
      { path: '/proc/none/at' },
    ]) {
      const errors = [
        await errorOf(() => BlockStore.open({ ...options, ...wrong })),
        await errorOf(() => BlockStore.openAsync({ ...options, ...wrong })),
      ];
      expect(errors[1]!.message).toBe(errors[0]!.message);
      expect([errors[1]!.code, errors[1]!.details]).toEqual([errors[0]!.code, errors[0]!.details]);
    }
  });

  it('may be opened off a thread that ends meanwhile', async () => {
    const path = join(scratchDirectory(), 'store');
    for (let i = 0; i < 5; i++) {
      const worker = new Worker(new URL('./opening-worker.mjs', import.meta.url), { workerData: path });
      await once(worker, 'message');
      await new Promise((resolve) => setTimeout(resolve, 5 * i));
      expect(await worker.terminate()).toBe(1);
    }
  });

  it('of another layout is refused, naming both', async () => {
    const path = join(scratchDirectory(), 'store');
    BlockStore.open({ path, layout });
    const others = [
      headsLayout(2),
      blockLayout(layout.model, { blockTokens: 8 }),
      blockLayout({ ...layout.model, dtype: 'float16' }, { blockTokens: 4 }),
      blockLayout({ ...layout.model, revision: '2' }, { blockTokens: 4 }),
      blockLayout(preset('demo'), { blockTokens: 4 }),
    ];
    for (const other of others) {
      const error = await errorOf(() => BlockStore.open({ path, layout: other }));
      expect(error.code).toBe('STORE_MISMATCH');
      expect(error.message).toContain(`holds blocks of layout '${layout.identity}'`);
      expect(error.message).toContain(`asked for layout '${other.identity}'`);
      expect(error.message).toContain('give every layout a directory of its own');
    }
    BlockStore.open({ path, layout });
  });

  it('of one shard is not another shard’s', async () => {
    const path = join(scratchDirectory(), 'store');
    const shard = (rank: number) => blockLayout(preset('demo'), { blockTokens: 4, shard: { rank, size: 2 } });
    BlockStore.open({ path, layout: shard(0) });
    expect((await errorOf(() => BlockStore.open({ path, layout: shard(1) }))).code).toBe('STORE_MISMATCH');
  });

  it('with a damaged manifest is refused', async () => {
    const path = join(scratchDirectory(), 'store');
    BlockStore.open({ path, layout });
    const manifest = join(path, 'store.manifest');
    const text = readFileSync(manifest, 'utf8');
    writeFileSync(manifest, text.slice(0, -10));
    expect((await errorOf(() => BlockStore.open({ path, layout }))).code).toBe('STORE_MISMATCH');
    writeFileSync(manifest, text.replace(/version=\d+/, 'version=999'));
    expect(await errorOf(() => BlockStore.open({ path, layout }))).toMatchObject({
      code: 'STORE_MISMATCH',
      message: expect.stringMatching(/format version '999', this build reads version/),
    });
  });

  it('cannot be a file, nor below one', async () => {
    const directory = scratchDirectory();
    const file = join(directory, 'file');
    writeFileSync(file, '');
    const error = await errorOf(() => BlockStore.open({ path: file, layout }));
    expect(error).toMatchObject({ code: 'STORAGE_IO', message: expect.stringContaining(file) });
    expect(error.message).toContain('has to name a directory');
    const below = await errorOf(() => BlockStore.open({ path: join(file, 'store', 'x'), layout }));
    expect(below).toMatchObject({ code: 'STORAGE_IO', message: expect.stringContaining('ENOTDIR') });
  });

  it('cannot be where nothing can be written', async () => {
    // Not even root can make directories in /proc.
    const error = await errorOf(() => BlockStore.open({ path: '/proc/dualpath/store', layout }));
    expect(error).toMatchObject({
      code: 'STORAGE_IO',
      message: expect.stringMatching(/^block store \/proc\/dualpath\/store: its parent directory/),
    });
    const directory = join(scratchDirectory(), 'store');
    BlockStore.open({ path: directory, layout });
    if (process.getuid?.() !== 0) {
      chmodSync(join(directory, 'tmp'), 0o500);
      const denied = await errorOf(() => BlockStore.open({ path: directory, layout }));
      expect(denied.message).toMatch(/needs read, write and search permission/);
    }
  });

  it('keeps namespaces apart by their salt', async () => {
    const path = scratchDirectory();
    const salted = (salt: string) =>
      openManager(layout, path, {
        store: BlockStore.open({ path: join(path, 'store'), layout, salt: Buffer.from(salt) }),
      });
    const [a, b, again] = [salted('tenant a'), salted('tenant b'), salted('tenant a')];
    await saveSequence(a, tokens(20), 1);
    const hits = await Promise.all(
      [b, again].map(async (manager) => (await manager.lookup(tokens(20))).hitBlocks),
    );
    expect(hits).toEqual([0, 4]);
  });

  it('refuses options that cannot be', async () => {
    const path = join(scratchDirectory(), 'store');
    for (const wrong of [
      { salt: new Uint8Array(65) },
      { salt: 'text' as unknown as Uint8Array },
      { indexCapacity: 0 },
      { indexCapacity: 1.5 },
      { indexCapacity: -1 },
    ]) {
      const error = await errorOf(() => BlockStore.open({ path, layout, ...wrong }));
      expect(error.code).toBe('INVALID_ARGUMENT');
    }
  });

  it('with an index that is too small still finds everything', async () => {
    const path = scratchDirectory();
    const store = BlockStore.open({ path: join(path, 'store'), layout, indexCapacity: 2 });
    const manager = openManager(layout, path, { store });
    await saveSequence(manager, tokens(33), 1);
    expect((await manager.lookup(tokens(33))).hitBlocks).toBe(8);
    expect(store.statistics().indexOverflows).toBeGreaterThan(0);
  });

  it('ignores files that are not its own', async () => {
    const path = scratchDirectory();
    const manager = openManager(layout, path);
    await saveSequence(manager, tokens(8), 1);
    const blocks = join(path, 'store', 'blocks');
    const folder = readdirSync(blocks)[0]!;
    writeFileSync(join(blocks, folder, 'notes.txt'), 'x');
    mkdirSync(join(blocks, folder, 'folder'));
    const store = BlockStore.open({ path: join(path, 'store'), layout });
    expect(store.statistics().blocks).toBe(2);
  });
});
