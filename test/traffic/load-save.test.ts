/** Out of one engine's memory into the store, out of the store into another's: every byte. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { blockLayout, type BlockLayout } from '../../src/layout/index.js';
import { BlockStore } from '../../src/storage/index.js';
import {
  headsLayout,
  headsModel,
  openManager,
  PagedMemory,
  preset,
  saveSequence,
  scattered,
  scratchDirectory,
  tokens,
} from './support.js';

const orders = ['nhd', 'hnd'] as const;

describe.each([
  ['heads', headsLayout()],
  ['one layer', headsLayout(1)],
  ['demo', blockLayout(preset('demo'), { blockTokens: 16 })],
  ['demo-mla', blockLayout(preset('demo-mla'), { blockTokens: 8 })],
  ['blocks of one token', blockLayout(headsModel(2), { blockTokens: 1 })],
] as [string, BlockLayout][])('%s', (_name, layout) => {
  const path = scratchDirectory(afterAll);
  const store = BlockStore.open({ path: join(path, 'store'), layout });

  it.each([
    ['nhd', 'hnd'],
    ['hnd', 'nhd'],
  ] as [(typeof orders)[number], (typeof orders)[number]][])('%s to %s', async (out, into) => {
    const manager = openManager(layout, path, { store });
    const blocks = 5;
    const count = blocks * layout.blockTokens + (layout.blockTokens > 1 ? 1 : 0);
    const sequence = tokens(count, orders.indexOf(out));
    const source = new PagedMemory(layout, 12, out);
    const from = scattered(blocks + 1);
    source.write(from, count, 1);

    const first = await manager.lookup(sequence);
    expect([first.blocks, first.hitBlocks]).toEqual([blocks, 0]);
    const saved = await manager.save({
      chain: first,
      firstBlock: 0,
      blocks,
      geometry: manager.adopt(source.geometry),
      blockTable: from,
    }).done;
    expect(saved.blocks).toBe(blocks);

    const again = await manager.lookup(sequence);
    // One token at least is left to compute; with nothing after the last full block that costs a block.
    const hits = count % layout.blockTokens === 0 ? blocks - 1 : blocks;
    expect([again.hitBlocks, again.hitTokens]).toEqual([hits, hits * layout.blockTokens]);
    const target = new PagedMemory(layout, 14, into);
    const to = scattered(blocks, 2);
    const layerCounter = manager.engine.takeCounters(1);
    const load = manager.load({
      chain: again,
      geometry: manager.adopt(target.geometry),
      blockTable: to,
      layerCounter,
    });
    for (let layer = 0; layer < layout.layers; layer++) {
      await load.layer(layer);
      expect(manager.engine.counter(layerCounter)).toBeGreaterThan(layer);
    }
    const { bytes } = await load.done;
    expect(manager.engine.counter(layerCounter)).toBe(layout.layers);
    expect(bytes).toBe(hits * (manager.store.file.fileBytes + layout.fullBlockBytes));
    expect(target.firstDifference(to, hits * layout.blockTokens, 1)).toBe(-1);
    expect(manager.buffer.available).toBe(16);
  });
});

describe('lookup', () => {
  it('finds the longest stored prefix', async () => {
    const manager = openManager(headsLayout(), scratchDirectory());
    const sequence = tokens(32);
    (await saveSequence(manager, sequence.subarray(0, 20), 1)).release();
    const other = sequence.slice();
    other[9]!++;
    const hits = async (of: Uint32Array): Promise<number> => {
      const chain = await manager.lookup(of);
      chain.release();
      chain.release();
      return chain.hitBlocks;
    };
    expect(await hits(sequence)).toBe(5);
    expect(await hits(other)).toBe(2);
    expect(await hits(sequence.subarray(0, 13))).toBe(3);
    expect(await hits(sequence.subarray(4))).toBe(0);
  });

  it('of less than a block finds nothing, and nothing is loaded', async () => {
    const layout = blockLayout(preset('demo'), { blockTokens: 64 });
    const manager = openManager(layout, scratchDirectory());
    for (const count of [0, 1, 63]) {
      const chain = await manager.lookup(tokens(count));
      expect([chain.blocks, chain.hitBlocks, chain.hitTokens]).toEqual([0, 0, 0]);
      const load = manager.load({ chain, geometry: 99, blockTable: [] });
      expect(await load.done).toEqual({ blocks: 0, bytes: 0 });
      await load.layer(layout.layers - 1);
      const save = manager.save({ chain, firstBlock: 0, blocks: 0, geometry: 99, blockTable: [] });
      expect(await save.done).toEqual({ blocks: 0, bytes: 0 });
    }
  });

  it('extends a chain as generation fills blocks', async () => {
    const layout = headsLayout();
    const path = scratchDirectory();
    const manager = openManager(layout, path);
    const sequence = tokens(22);
    const { KeyChain } = await import('../../src/traffic/index.js');
    const chain = await KeyChain.hash(manager.engine, layout, sequence.subarray(0, 6), true, 3);
    for (const count of [7, 8, 15, 22, 22]) await chain.extend(sequence.subarray(0, count));
    expect(chain.blocks).toBe(4); // 1 and room for 3 more
    const memory = new PagedMemory(layout, 8, 'hnd');
    const blockTable = [6, 1, 0, 3];
    memory.write(blockTable, 16, 5);
    const geometry = manager.adopt(memory.geometry);
    for (let block = 0; block < 4; block++) {
      const one = { firstBlock: block, blocks: 1, blockTable: blockTable.slice(block) };
      await manager.save({ chain, geometry, ...one }).done;
    }
    const other = openManager(layout, path, { store: manager.store });
    const found = await other.lookup(sequence);
    expect(found.hitBlocks).toBe(4);
    const target = new PagedMemory(layout, 4, 'nhd');
    const to = [3, 2, 0, 1];
    await other.load({ chain: found, geometry: other.adopt(target.geometry), blockTable: to }).done;
    expect(target.firstDifference(to, 16, 5)).toBe(-1);
  });

  it('needs keys, and says when there is no room for them', async () => {
    const manager = openManager(headsLayout(), scratchDirectory(), { maxTokens: 4 });
    const before = manager.engine.keyTable.available;
    await expect(manager.lookup(tokens(4 * (before + 1)))).rejects.toMatchObject({
      code: 'CAPACITY_EXHAUSTED',
    });
    await expect(manager.lookup(new Uint8Array(8) as unknown as Uint32Array)).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
    });
    expect(manager.engine.keyTable.available).toBe(before);
  });
});

describe('save', () => {
  it('skips what is stored already and leaves no temporary file', async () => {
    const path = scratchDirectory();
    const manager = openManager(headsLayout(), path, { durable: true });
    await saveSequence(manager, tokens(16), 1);
    await saveSequence(manager, tokens(24), 1);
    expect(manager.engine.statistics()).toMatchObject({ writeBlocks: 6, writeSkippedBlocks: 4 });
    expect(readdirSync(join(path, 'store', 'tmp'))).toEqual([]);
    expect(manager.store.statistics()).toMatchObject({ blocks: 6, published: 6 });
  });
});
