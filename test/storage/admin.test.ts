/** Opening with a capacity and in namespaces, the jobs of StoreAdmin, and the store against a plain model. */
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { describe, expect, it } from 'vitest';
import { BlockStore, StoreAdmin } from '../../src/storage/index.js';
import {
  errorOf,
  headsLayout,
  openManager,
  saveSequence,
  scratchDirectory,
  tokens,
} from '../traffic/support.js';

const layout = headsLayout();

describe('BlockStore.open', () => {
  it('refuses namespaces and capacities that are none', async () => {
    const path = join(scratchDirectory(), 'store');
    const refused: [object, RegExp][] = [
      [{ namespace: '' }, /leave the option out/],
      [{ namespace: '../x' }, /namespace '..\/x': give 1 to 40 of/],
      [{ namespace: 'X' }, /beginning with a letter or a digit/],
      [{ capacityBytes: 0 }, /capacityBytes is 0/],
      [{ capacityBytes: -1 }, /capacityBytes is -1/],
      [{ capacityBytes: 1.5 }, /capacityBytes is 1.5/],
      [{ capacityBytes: 100 }, /less than one block of/],
    ];
    for (const [options, message] of refused) {
      const error = await errorOf(() => BlockStore.open({ path, layout, ...options }));
      expect([error.code, error.message]).toEqual(['INVALID_ARGUMENT', expect.stringMatching(message)]);
    }
  });

  it('leaves another program’s directory alone', async () => {
    const path = join(scratchDirectory(), 'project');
    mkdirSync(path);
    writeFileSync(join(path, 'package.json'), '{}');
    const error = await errorOf(() => BlockStore.open({ path, layout }));
    expect([error.code, error.message]).toEqual([
      'STORE_MISMATCH',
      expect.stringMatching(
        /holds 'package.json', so it is another program's; give an empty or a new directory/,
      ),
    ]);
    expect(readdirSync(path)).toEqual(['package.json']);
  });

  it('keeps namespaces apart, with and without a salt', async () => {
    const directory = scratchDirectory();
    const path = join(directory, 'store');
    const salt = Uint8Array.of(1, 2, 3);
    const open = (namespace?: string, secret?: Uint8Array) =>
      openManager(layout, directory, {
        store: BlockStore.open({
          ...{ path, layout },
          ...(namespace === undefined ? {} : { namespace }),
          ...(secret === undefined ? {} : { salt: secret }),
        }),
      });
    (await saveSequence(open('a', salt), tokens(20), 1)).release();
    const hits = async (...options: Parameters<typeof open>): Promise<number> => {
      const chain = await open(...options).lookup(tokens(20));
      chain.release();
      return chain.hitBlocks;
    };
    expect(await hits('a', salt)).toBe(4);
    expect([await hits('a'), await hits('b', salt), await hits(undefined, salt)]).toEqual([0, 0, 0]);
  });

  it('with a capacity stays below it', async () => {
    const directory = scratchDirectory();
    const { fileBytes } = BlockStore.open({ path: join(directory, 'store'), layout }).file;
    const store = BlockStore.open({ path: join(directory, 'store'), layout, capacityBytes: 40 * fileBytes });
    const manager = openManager(layout, directory, { store });
    for (let seed = 1; seed <= 20; seed++) (await saveSequence(manager, tokens(20, seed), seed)).release();
    await expect
      .poll(async () => (await StoreAdmin.open(store.path).stat()).blocks, { timeout: 10_000 })
      .toBeLessThanOrEqual(38);
    const statistics = store.statistics();
    expect(statistics.evictedBlocks).toBeGreaterThanOrEqual(60);
    expect(statistics).toMatchObject({ capacityBytes: 40 * fileBytes, evictionFailures: 0 });
  });
});

describe('StoreAdmin', () => {
  it('stops when its signal says so, and works again after', async () => {
    const directory = scratchDirectory();
    (await saveSequence(openManager(layout, directory), tokens(20), 1)).release();
    const admin = StoreAdmin.open(join(directory, 'store'));
    await admin.verify({ signal: AbortSignal.abort() });
    expect(await admin.verify()).toMatchObject({ blocks: 5, resume: null });
  });

  it('ends with its worker, in the middle of a job', async () => {
    const directory = scratchDirectory();
    (await saveSequence(openManager(layout, directory), tokens(20), 1)).release();
    for (let i = 0; i < 5; i++) {
      const worker = new Worker(new URL('./store-worker.mjs', import.meta.url), {
        workerData: join(directory, 'store'),
      });
      await once(worker, 'message');
      expect(await worker.terminate()).toBe(1);
    }
  });

  it('deletes a namespace under a store that has it open: misses, and writes that say so', async () => {
    const directory = scratchDirectory();
    const path = join(directory, 'store');
    const manager = openManager(layout, directory, {
      store: BlockStore.open({ path, layout, namespace: 'a' }),
    });
    (await saveSequence(manager, tokens(20), 1)).release();
    expect(await StoreAdmin.open(path).deleteNamespace('a')).toMatchObject({ blocks: 5, failed: 0 });
    const chain = await manager.lookup(tokens(20));
    expect(chain.hitBlocks).toBe(0);
    chain.release();
    const error = await errorOf(saveSequence(manager, tokens(20), 1));
    expect([error.code, error.details['errno']]).toEqual(['STORAGE_IO', 2]);
    const again = openManager(layout, directory, {
      store: BlockStore.open({ path, layout, namespace: 'a' }),
    });
    (await saveSequence(again, tokens(20), 1)).release();
    const found = await manager.lookup(tokens(20)); // and who had it open all the time finds it, too
    expect(found.hitBlocks).toBe(4);
    found.release();
  });

  it('tells misses by their cause', async () => {
    const directory = scratchDirectory();
    const manager = openManager(layout, directory);
    (await saveSequence(manager, tokens(20), 1)).release();
    const blocks = readdirSync(join(directory, 'store', 'blocks'), { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.kvb'))
      .map((name) => join(directory, 'store', 'blocks', name));
    for (const path of blocks) writeFileSync(path, 'spoiled');
    const chain = await manager.lookup(tokens(20));
    const geometry = manager.buffer.geometry;
    const slots = await manager.buffer.take(1);
    const { engine } = manager;
    const read = { op: 'read', geometry, keys: chain.offset, slots: slots.offset, blocks: 1 } as const;
    expect((await errorOf(engine.submit([read]).done)).code).toBe('BAD_BLOCK');
    slots.release();
    chain.release();
    expect(manager.store.statistics().missesByCause).toMatchObject({ truncated: 1, vanished: 0, foreign: 0 });
  });
});
