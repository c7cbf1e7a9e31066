/** Loads and saves of more than the buffer holds, of a part of a sequence, and of both when something fails. */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { BlockStore } from '../../src/storage/index.js';
import { LoadError, type KeyChain, type LoadOptions, type TrafficManager } from '../../src/traffic/index.js';
import { attention, PagedEngine } from './paged-engines.js';
import { errorOf, openManager, openRuntime, scratchDirectory, tokens } from './support.js';

const path = scratchDirectory(afterAll);
const store = BlockStore.open({ path: join(path, 'store'), layout: attention });
const blocks = 12;
const blockTokens = 8;
const table = Array.from({ length: 2 * blocks }, (_, i) => (i * 7 + 2) % 31);
let scenes = 0;

interface Scene {
  readonly manager: TrafficManager;
  readonly runtime: ReturnType<typeof openRuntime>;
  readonly memory: PagedEngine;
  readonly seed: number;
  readonly options: LoadOptions;
  readonly fileOf: (block: number) => string;
}

/** The file of a block: named after its key. */
function fileOf({ engine }: TrafficManager, chain: KeyChain, block: number): string {
  return engine.handle.blockPath(chain.offset + block);
}

/** 12 blocks saved through a buffer of so many slots, and empty memory to load them into. */
async function scene(bufferBlocks: number): Promise<Scene> {
  const seed = 30_000 + scenes++;
  const runtime = openRuntime();
  const manager = openManager(attention, path, { store, bufferBlocks, runtime });
  const sequence = tokens(blocks * blockTokens + 1, seed);
  const source = new PagedEngine('sglang', 31, 4);
  source.write(table, 0, 0, blocks * blockTokens, seed);
  const written = await manager.hash(sequence);
  const geometry = manager.adopt(source.geometry);
  await manager.save({ chain: written, firstBlock: 0, blocks, geometry, blockTable: table }).done;
  const memory = new PagedEngine('hnd', 31, 4);
  const chain = await manager.lookup(sequence);
  return {
    ...{ manager, runtime, memory, seed },
    options: { chain, geometry: manager.adopt(memory.geometry), blockTable: table },
    fileOf: (block) => fileOf(manager, written, block),
  };
}

const holds = ({ memory, seed }: Scene, from: number, to: number): boolean =>
  memory.holds(table, 0, from * blockTokens, to * blockTokens, seed);

const nothingHeld = ({ manager }: Scene): void => {
  expect(manager.buffer.available).toBe(manager.buffer.slots);
  expect(manager.engine.slotTable.available).toBe(1 << 16);
};

describe('a load through a buffer too small for it', () => {
  it.each([1, 2, 3, 5, 11, 12, 20])('%i slots', async (bufferBlocks) => {
    const it = await scene(bufferBlocks);
    const { manager, options } = it;
    const before = manager.engine.slotTable.available;
    const layerCounter = manager.engine.takeCounters(1);
    const load = manager.load({ ...options, layerCounter });
    for (let layer = 0; layer < attention.layers; layer++) {
      await load.layer(layer);
      expect(manager.engine.counter(layerCounter)).toBeGreaterThan(layer);
    }
    await load.done;
    expect(holds(it, 0, blocks)).toBe(true);
    expect(manager.buffer.highWater).toBe(Math.min(blocks, bufferBlocks));
    expect(manager.engine.slotTable.available).toBe(before);
  });

  it('the first layer is said to be there only when every part has it', async () => {
    const it = await scene(4);
    const { manager, options } = it;
    const layerCounter = manager.engine.takeCounters(1);
    // All but the last part can be read; then that block is gone.
    rmSync(it.fileOf(11));
    const error = await errorOf(manager.load({ ...options, layerCounter }).done);
    expect([error.code, manager.engine.counter(layerCounter)]).toEqual(['BAD_BLOCK', 0]);
  });

  it('a block that cannot be read: all before it arrive, whichever part it is in', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 1, max: 13 }),
        fc.uniqueArray(fc.nat({ max: blocks - 1 }), { minLength: 1, maxLength: 3 }),
        fc.nat({ max: blocks - 1 }),
        async (bufferBlocks, gone, firstBlock) => {
          const it = await scene(bufferBlocks);
          for (const block of gone) rmSync(it.fileOf(block));
          const missing = Math.min(...gone.filter((block) => block >= firstBlock), blocks);
          const blockTable = table.slice(2 * firstBlock);
          const load = it.manager.load({ ...it.options, blockTable, firstBlock });
          if (missing === blocks) {
            expect((await load.done).blocks).toBe(blocks - firstBlock);
          } else {
            const error = (await errorOf(load.done)) as LoadError;
            expect(error).toBeInstanceOf(LoadError);
            expect(error.code).toBe('BAD_BLOCK');
            expect([error.failedFromBlock, error.failedToBlock]).toEqual([missing, blocks]);
            expect([error.failedFromToken, error.failedToToken]).toEqual([8 * missing, 8 * blocks]);
          }
          expect(it.memory.holds(table, 0, 8 * firstBlock, 8 * missing, it.seed)).toBe(true);
          expect(it.manager.buffer.available).toBe(bufferBlocks);
          await it.manager.close();
        },
      ),
      { numRuns: 25 },
    );
  });

  it('a cancelled one says what is there: whole parts', async () => {
    const it = await scene(2);
    it.runtime.setFaults({ readDelayNs: 50_000_000 });
    const abort = new AbortController();
    const load = it.manager.load({ ...it.options, signal: abort.signal });
    // Part by part, a block each: cancel when some have been read.
    const before = it.manager.engine.statistics().readBlocks;
    while (it.manager.engine.statistics().readBlocks < before + 4) {
      await new Promise((resolve) => setImmediate(resolve));
    }
    abort.abort();
    const error = (await errorOf(load.done)) as LoadError;
    expect(error.code).toBe('CANCELLED');
    expect(error.failedFromBlock).toBeGreaterThanOrEqual(2);
    // What is said to be there is; of the next parts some may be as well.
    const copy = new PagedEngine('hnd', 31, 4);
    copy.write(table, 0, 0, 8 * error.failedFromBlock, it.seed);
    copy.buffers.forEach((buffer, i) =>
      buffer.forEach((byte, at) => {
        if (byte !== 0xee) expect(it.memory.buffers[i]![at]).toBe(byte);
      }),
    );
    nothingHeld({ ...it });
  });
});

describe('a part of a sequence', () => {
  it('blocks that the engine has are not read', async () => {
    const it = await scene(16);
    const before = it.manager.engine.statistics().readBlocks;
    const blockTable = table.slice(2 * 5);
    const { blocks: loaded } = await it.manager.load({ ...it.options, blockTable, firstBlock: 5 }).done;
    expect(loaded).toBe(7);
    expect(it.manager.engine.statistics().readBlocks).toBe(before + 7);
    expect(holds(it, 5, blocks)).toBe(true);
    const none = await it.manager.load({ ...it.options, firstBlock: 12 }).done;
    expect(none).toEqual({ blocks: 0, bytes: 0 });
  });

  it('all but the last token of a prompt that is stored whole', async () => {
    const it = await scene(16);
    const prompt = tokens(blocks * blockTokens, it.seed);
    const chain = await it.manager.lookup(prompt);
    expect([chain.storedBlocks, chain.hitBlocks]).toEqual([blocks, blocks - 1]);
    const tokenEnd = prompt.length - 1;
    await it.manager.load({ ...it.options, chain, blocks: chain.storedBlocks, tokenEnd }).done;
    expect(it.memory.holds(table, 0, 0, tokenEnd, it.seed)).toBe(true);
  });

  it.each([
    ['tokens before the blocks', { firstBlock: 2, tokenBegin: 15 }],
    ['tokens that leave the first block out', { firstBlock: 2, tokenBegin: 24 }],
    ['tokens that leave the last block out', { blocks: 3, tokenEnd: 16 }],
    ['tokens after the blocks', { blocks: 3, tokenEnd: 25 }],
    ['no tokens', { blocks: 1, tokenBegin: 4, tokenEnd: 4 }],
    ['half a token', { blocks: 1, tokenEnd: 4.5 }],
    ['more blocks than there are from there on', { firstBlock: 5, blocks: 8 }],
    ['a block before the first', { firstBlock: -1, blocks: 2 }],
    ['a page twice', { blocks: 2, blockTable: [1, 2, 3, 1] }],
    ['a table too short by a page', { blocks: 2, blockTable: [1, 2, 3] }],
    ['a page beyond the last', { blocks: 2, blockTable: [1, 2, 3, 31] }],
    ['a negative page where one is needed', { blocks: 2, blockTable: Int32Array.of(1, 2, 3, -1) }],
    ['a window that is no position', { windowEnd: -1 }],
  ] as [string, Partial<LoadOptions>][])('%s', async (_name, wrong) => {
    const it = await scene(16);
    const error = (await errorOf(it.manager.load({ ...it.options, ...wrong }).done)) as LoadError;
    expect(error).toBeInstanceOf(LoadError);
    expect(error.code).toBe('INVALID_ARGUMENT');
    expect(it.memory.holds(table, 0, 0, 0, it.seed)).toBe(true);
    nothingHeld(it);
  });

  it('keys of another engine, and keys that have been released', async () => {
    const it = await scene(16);
    const other = openManager(attention, path, { store });
    const chain = await other.lookup(tokens(blocks * blockTokens + 1, it.seed));
    const refused = /the keys are of another engine, or have been released/;
    expect((await errorOf(it.manager.load({ ...it.options, chain }).done)).message).toMatch(refused);
    it.options.chain.release();
    expect((await errorOf(it.manager.load({ ...it.options, blocks: 2 }).done)).message).toMatch(refused);
    const save = it.manager.save({ ...it.options, firstBlock: 0, blocks: 1 });
    expect((await errorOf(save.done)).message).toMatch(refused);
  });

  it('memory that has been transferred away', async () => {
    const it = await scene(16);
    const { Region, engineGeometry, vllmAttention } = await import('../../src/memory/index.js');
    const buffers = [new ArrayBuffer(2 * 31 * 4 * 24), new ArrayBuffer(2 * 31 * 4 * 24)];
    const shape = { blocks: 31, blockSize: 4, heads: 2, headSize: 6, elementBytes: 2 };
    const tensors = buffers.map((buffer) => ({ memory: Region.ofBuffer({ name: 'kv' }, buffer) }));
    const geometry = it.manager.adopt(
      engineGeometry(attention, { kv: vllmAttention(tensors, shape, 'kv-first') }),
    );
    await it.manager.load({ ...it.options, geometry }).done;
    structuredClone(buffers[1], { transfer: [buffers[1]!] });
    expect((await errorOf(it.manager.load({ ...it.options, geometry }).done)).message).toMatch(
      /memory 'kv': its ArrayBuffer has been transferred away/,
    );
  });
});
