/** What goes wrong between store and memory, and what is left afterwards. */
import { existsSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { BlockStore } from '../../src/storage/index.js';
import { headerWord, keyBytes } from '../../src/transfer/abi.js';
import { LoadError, TrafficManager, type KeyChain, type LoadOptions } from '../../src/traffic/index.js';
import {
  errorOf,
  headsLayout,
  openManager,
  openRuntime,
  PagedMemory,
  saveSequence,
  scattered,
  scratchDirectory,
  sleep,
  tokens,
} from './support.js';

const layout = headsLayout();
const blocks = 8;
const blockTable = scattered(blocks);

// One store for all: its 256 directories take their time. Every scene has a sequence of its own in it.
const path = scratchDirectory(afterAll);
const store = BlockStore.open({ path: join(path, 'store'), layout });
let scenes = 0;

/** The files of a chain's blocks: named after their keys. */
function filesOf({ engine }: TrafficManager, chain: KeyChain): string[] {
  const door = engine.handle.door()!;
  const keys = new Uint32Array(door)[headerWord.keyOffset]! + keyBytes * chain.offset;
  return Array.from({ length: chain.blocks }, (_, block) => {
    const name = Buffer.from(door, keys + keyBytes * block, keyBytes).toString('hex');
    return join(path, 'store', 'blocks', name.slice(0, 2), `${name}.kvb`);
  });
}

/** A sequence of 8 stored blocks, a manager, and empty memory to load into. */
async function scene(options: { buffer?: number } = {}): Promise<{
  sequence: Uint32Array;
  runtime: ReturnType<typeof openRuntime>;
  manager: TrafficManager;
  memory: PagedMemory;
  fileOf: (block: number) => string;
  loadOptions: () => Promise<LoadOptions>;
}> {
  const sequence = tokens(4 * blocks + 1, 1000 + scenes++);
  const runtime = openRuntime();
  const manager = openManager(layout, path, { runtime, store, bufferBlocks: options.buffer ?? blocks });
  const writer = openManager(layout, path, { runtime, store });
  const files = filesOf(writer, await saveSequence(writer, sequence, 1));
  const memory = new PagedMemory(layout, 2 * blocks + 1, 'hnd');
  const geometry = manager.adopt(memory.geometry);
  return {
    sequence,
    runtime,
    manager,
    memory,
    fileOf: (block) => files[block]!,
    loadOptions: async () => ({ chain: await manager.lookup(sequence), geometry, blockTable }),
  };
}

async function failedLoad(manager: TrafficManager, options: LoadOptions): Promise<LoadError> {
  const load = manager.load(options);
  const early = load.layer(0).then(
    () => 'arrived',
    (error: unknown) => error,
  );
  const error = await errorOf(load.done);
  expect(error).toBeInstanceOf(LoadError);
  // Whoever waits for a layer hears of it, before and after.
  expect(await early).toBe(error);
  await expect(load.layer(layout.layers - 1)).rejects.toBe(error);
  expect(manager.buffer.available).toBe(manager.buffer.slots);
  return error as LoadError;
}

const flip = (file: string, at: number): void => {
  const bytes = readFileSync(file);
  bytes[at]! ^= 0x10;
  writeFileSync(file, bytes);
};

describe('a bad block', () => {
  it.each([
    ['corrupt payload', 5, (file: string) => flip(file, 4096 + 100)],
    ['corrupt header', 3, (file: string) => flip(file, 20)],
    ['truncated', 7, (file: string) => truncateSync(file, 4096)],
    ['empty', 2, (file: string) => truncateSync(file, 0)],
    ['gone', 4, (file: string) => rmSync(file)],
    ['the first', 0, (file: string) => flip(file, 5000)],
    ['the last', 7, (file: string) => flip(file, 5000)],
  ] as [string, number, (file: string) => void][])(
    '%s: those before it arrive',
    async (_what, bad, damage) => {
      const { sequence, manager, memory, fileOf, loadOptions } = await scene();
      const options = await loadOptions();
      damage(fileOf(bad));
      const error = await failedLoad(manager, options);
      expect([error.code, error.failedFromBlock, error.blocks]).toEqual(['BAD_BLOCK', bad, blocks]);
      expect(error.message).toContain(`blocks from ${bad} on, of 8, did not arrive: recompute them`);
      expect(memory.firstDifference(blockTable, 4 * bad, 1)).toBe(-1);
      expect(manager.engine.statistics().badBlocks).toBe(1);
      // Out of service, and a new save heals it.
      expect(existsSync(fileOf(bad))).toBe(false);
      expect((await manager.lookup(sequence)).hitBlocks).toBe(bad);
      await saveSequence(manager, sequence, 1);
      await manager.load(await loadOptions()).done;
      expect(memory.firstDifference(blockTable, 4 * blocks, 1)).toBe(-1);
      expect(readdirSync(join(path, 'store', 'tmp'))).toEqual([]);
    },
  );

  it('and another after it: the first counts', async () => {
    const { manager, memory, fileOf, loadOptions } = await scene();
    const options = await loadOptions();
    for (const block of [6, 3, 5]) flip(fileOf(block), 4200);
    const error = await failedLoad(manager, options);
    expect(error.failedFromBlock).toBe(3);
    expect(memory.firstDifference(blockTable, 12, 1)).toBe(-1);
  });
});

describe('storage', () => {
  it('an I/O error names file, offset, length and errno; the blocks before it arrive', async () => {
    const { runtime, manager, memory, loadOptions } = await scene();
    const options = await loadOptions();
    runtime.setFaults({ readErrno: 5, readErrorAfter: 4 });
    const error = await failedLoad(manager, options);
    const { fileBytes } = manager.store.file;
    expect(error).toMatchObject({
      code: 'STORAGE_IO',
      details: { errno: 5, op: 'read', call: 'read', offset_bytes: 0, bytes: fileBytes },
    });
    expect(error.message).toMatch(/read of .*\.kvb at byte 0 of \d+, errno 5 \(EIO\)/);
    expect(memory.firstDifference(blockTable, 4 * error.failedFromBlock, 1)).toBe(-1);
    runtime.setFaults({});
    await manager.load(options).done;
    expect(memory.firstDifference(blockTable, 4 * blocks, 1)).toBe(-1);
    expect(manager.engine.statistics().badBlocks).toBe(0);
  });

  it('short reads are continued', async () => {
    const { runtime, manager, memory, loadOptions } = await scene();
    runtime.setFaults({ shortReadBytes: 4096 });
    const { bytes } = await manager.load(await loadOptions()).done;
    expect(bytes).toBe(blocks * (manager.store.file.fileBytes + layout.fullBlockBytes));
    expect(memory.firstDifference(blockTable, 4 * blocks, 1)).toBe(-1);
  });

  it('without space nothing is published and nothing left behind', async () => {
    const sequence = tokens(4 * blocks + 1, 999);
    const runtime = openRuntime();
    const manager = openManager(layout, path, { runtime, store });
    runtime.setFaults({ writeErrno: 28, writeErrorAfter: 1 });
    expect(await errorOf(saveSequence(manager, sequence.subarray(0, 4), 1))).toMatchObject({
      code: 'NO_SPACE',
      message: expect.stringMatching(
        /errno 28.*free space or inodes on its file system, or use another directory/,
      ),
    });
    const [file] = filesOf(manager, await manager.hash(sequence));
    expect(existsSync(file!)).toBe(false);
    expect((await manager.lookup(sequence)).hitBlocks).toBe(0);
    const temporary = (): string[] => readdirSync(join(path, 'store', 'tmp'));
    for (let i = 0; i < 100 && temporary().length > 0; i++) await sleep(2);
    expect(temporary()).toEqual([]);
    expect(manager.buffer.available).toBe(16);
    await saveSequence(manager, sequence, 1);
    expect(existsSync(file!)).toBe(true);
    expect((await manager.lookup(sequence)).hitBlocks).toBe(blocks);
  });
});

describe('cancel', () => {
  it('before it began', async () => {
    const { manager, memory, loadOptions } = await scene();
    const options = { ...(await loadOptions()), signal: AbortSignal.abort('not needed') };
    expect(await failedLoad(manager, options)).toMatchObject({ code: 'CANCELLED', failedFromBlock: 0 });
    const save = manager.save({ ...options, firstBlock: 0, blocks: 2 });
    expect((await errorOf(save.done)).code).toBe('CANCELLED');
    expect(memory.firstDifference(blockTable, 0, 1)).toBe(-1);
  });

  it('of a slow load: slots come back only after it has ended', async () => {
    const { runtime, manager, memory, loadOptions } = await scene();
    runtime.setFaults({ readDelayNs: 60_000_000 });
    const abort = new AbortController();
    const options = { ...(await loadOptions()), signal: abort.signal };
    const started = performance.now();
    const load = manager.load(options);
    await sleep(5);
    expect(manager.buffer.available).toBe(0);
    abort.abort();
    const next = manager.buffer.take(1); // waits for them
    const error = errorOf(load.done);
    const list = await next;
    // The reads were under way into the buffer: it is free only when they have come back.
    expect(performance.now() - started).toBeGreaterThan(55);
    list.release();
    expect((await error).code).toBe('CANCELLED');
    expect(memory.firstDifference(blockTable, 0, 1)).toBe(-1);
  });

  it('while it waits for the buffer', async () => {
    const { manager, loadOptions } = await scene();
    const all = await manager.buffer.take(blocks);
    const abort = new AbortController();
    const load = manager.load({ ...(await loadOptions()), signal: abort.signal });
    await sleep(2);
    abort.abort();
    expect((await errorOf(load.done)).code).toBe('CANCELLED');
    all.release();
    await manager.load(await loadOptions()).done;
  });

  it('by closing: operations end, also those that wait for the buffer', async () => {
    const { sequence, runtime, manager, loadOptions } = await scene();
    runtime.setFaults({ readDelayNs: 20_000_000 });
    const options = await loadOptions();
    const operations = [
      manager.load(options),
      manager.load(options),
      manager.save({ ...options, firstBlock: 0, blocks }),
    ];
    const errors = Promise.all(operations.map((operation) => errorOf(operation.done)));
    await manager.close();
    expect((await errors).map((error) => error.code)).toEqual(['CLOSED', 'CLOSED', 'CLOSED']);
    expect((await errorOf(manager.load(options).done)).code).toBe('CLOSED');
    expect((await errorOf(manager.lookup(sequence))).code).toBe('CLOSED');
    await manager.close();
  });
});

describe('limits', () => {
  it('two loads through a buffer that has room for one', async () => {
    const { manager, memory, loadOptions } = await scene();
    const options = await loadOptions();
    const twins = [memory, new PagedMemory(layout, 2 * blocks + 1, 'nhd')];
    const geometries = [options.geometry, manager.adopt(twins[1]!.geometry)];
    const loads = geometries.map((geometry) => manager.load({ ...options, geometry }));
    await Promise.all(loads.map((load) => load.done));
    for (const twin of twins) expect(twin.firstDifference(blockTable, 4 * blocks, 1)).toBe(-1);
    expect(manager.buffer.highWater).toBe(blocks);
  });

  it.each([
    ['more blocks than have keys', { blocks: 9 }],
    ['more blocks than the table has', { blockTable: [1, 2] }],
    ['half a block', { blocks: 1.5 }],
    ['NaN blocks', { blocks: Number.NaN }],
    ['fewer blocks than none', { blocks: -1 }],
    ['a hole in the table', { blockTable: [0, 1, 2, undefined, 4, 5, 6, 7] as number[] }],
    ['a slot that is none', { blockTable: [0, 1, 2, -3, 4, 5, 6, 7] }],
    ['a slot beyond the memory', { blockTable: [0, 1, 2, 3, 4, 5, 6, 17] }],
    ['a geometry that does not exist', { geometry: 77 }],
  ] as [string, Partial<LoadOptions>][])('%s', async (_what, wrong) => {
    const { manager, loadOptions } = await scene();
    const options = { ...(await loadOptions()), ...wrong };
    const error = await failedLoad(manager, options);
    expect([error.code, error.failedFromBlock]).toEqual(['INVALID_ARGUMENT', 0]);
    const save = manager.save({ firstBlock: 0, blocks, ...options });
    expect((await errorOf(save.done)).code).toBe('INVALID_ARGUMENT');
    const before = manager.engine.slotTable.available;
    await manager.load(await loadOptions()).done;
    expect(manager.engine.slotTable.available).toBe(before);
  });

  it('a manager that cannot be leaves nothing behind', async () => {
    const runtime = openRuntime();
    const open = (bufferBlocks: number): TrafficManager =>
      openManager(layout, path, { runtime, store, name: 'only', bufferBlocks });
    for (const bufferBlocks of [0, -1, 1.5, Number.NaN, 2 ** 40]) {
      expect((await errorOf(() => open(bufferBlocks))).code).toBe('INVALID_ARGUMENT');
    }
    expect(
      await errorOf(
        () => new TrafficManager({ name: 'only', layout: headsLayout(2), store, bufferBlocks: 1, runtime }),
      ),
    ).toMatchObject({ code: 'STORE_MISMATCH', details: { store: layout.identity } });
    await open(1).close(); // the name is free
  });
});
