/** Through a real store, out of one engine's layout into another's, by shuffled page tables: every byte. */
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { BlockStore } from '../../src/storage/index.js';
import { attention, PagedEngine, sparseMla, type Kind } from './paged-engines.js';
import { errorOf, openManager, openRuntime, scratchDirectory, tokens } from './support.js';

const blockTokens = 8;
const pageSizes = [1, 2, 4, 8, 16, 24];

/** Pages of a table in an order that `shuffle` says. */
function pagesOf(count: number, shuffle: number): number[] {
  const pages = Array.from({ length: count }, (_, i) => i);
  let state = shuffle;
  for (let i = count - 1; i > 0; i--) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    const j = state % (i + 1);
    [pages[i], pages[j]] = [pages[j]!, pages[i]!];
  }
  return pages;
}

const side = (kinds: readonly Kind[]) =>
  fc.record({
    kind: fc.constantFrom(...kinds),
    pageTokens: fc.constantFrom(...pageSizes),
    shuffle: fc.nat(),
  });

const scene = (kinds: readonly Kind[]) =>
  fc.record({
    from: side(kinds),
    to: side(kinds),
    blocks: fc.integer({ min: 1, max: 6 }),
    /** Slots of the buffer: fewer than blocks make a load of several parts. */
    bufferBlocks: fc.integer({ min: 1, max: 8 }),
    first: fc.nat({ max: 5 }),
    cutBegin: fc.nat({ max: blockTokens - 1 }),
    cutEnd: fc.nat({ max: blockTokens - 1 }),
  });

let seeds = 5000;

describe.each([
  ['attention', attention, ['nhd', 'nhd-blocks-first', 'hnd', 'hnd-blocks-first', 'sglang']],
  ['sparse MLA', sparseMla, ['mla']],
] as const)('%s', (_name, layout, kinds) => {
  const path = scratchDirectory(afterAll);
  const store = BlockStore.open({ path: join(path, 'store'), layout });

  it('what one engine has saved another loads, from any block on, to any token', async () => {
    await fc.assert(
      fc.asyncProperty(scene(kinds), async ({ from, to, blocks, bufferBlocks, first, cutBegin, cutEnd }) => {
        const seed = seeds++;
        const manager = openManager(layout, path, { store, bufferBlocks, pagesPerBlock: blockTokens });
        const count = blocks * blockTokens + 1;
        const sequence = tokens(count, seed);
        const source = new PagedEngine(from.kind, Math.ceil(count / from.pageTokens) + 2, from.pageTokens);
        const sourceTable = pagesOf(Math.ceil(count / from.pageTokens), from.shuffle);
        source.write(sourceTable, 0, 0, blocks * blockTokens, seed);
        const chain = await manager.lookup(sequence);
        const geometry = manager.adopt(source.geometry);
        await manager.save({ chain, firstBlock: 0, blocks, geometry, blockTable: sourceTable }).done;

        const found = await manager.lookup(sequence);
        expect(found.hitBlocks).toBe(blocks);
        const firstBlock = Math.min(first, blocks - 1);
        const begin = firstBlock * blockTokens;
        const tokenBegin = begin + Math.min(cutBegin, blockTokens - 1);
        const tokenEnd = Math.max(blocks * blockTokens - cutEnd, tokenBegin + 1);
        const target = new PagedEngine(to.kind, Math.ceil(count / to.pageTokens) + 3, to.pageTokens);
        const firstPage = Math.floor(begin / to.pageTokens);
        const needed = Math.ceil(tokenEnd / to.pageTokens) - firstPage;
        const table = Int32Array.from(pagesOf(needed + 2, to.shuffle)).subarray(0, needed);
        const load = manager.load({
          chain: found,
          firstBlock,
          tokenBegin,
          tokenEnd,
          geometry: manager.adopt(target.geometry),
          blockTable: table,
        });
        await load.layer(0);
        expect((await load.done).blocks).toBe(blocks - firstBlock);
        expect(target.holds(table, begin, tokenBegin, tokenEnd, seed)).toBe(true);
        expect(manager.buffer.available).toBe(bufferBlocks);
        await manager.close();
      }),
      { numRuns: 40 },
    );
  });
});

describe('groups with page tables of their own', () => {
  it('each group goes by its table', async () => {
    const path = scratchDirectory();
    const manager = openManager(sparseMla, path, { pagesPerBlock: 4 });
    const engine = new PagedEngine('mla', 8, 4);
    const [mla, indexer] = [pagesOf(8, 3), pagesOf(8, 4)];
    const geometry = manager.adopt(engine.geometry);
    const chain = await manager.hash(tokens(32, 77));
    const save = { chain, firstBlock: 0, blocks: 4, geometry };
    await manager.save({ ...save, blockTable: { mla, indexer } }).done;
    expect(manager.engine.statistics().writeBlocks).toBe(4);
    expect(await errorOf(manager.save({ ...save, blockTable: { mla } }).done)).toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: "no block table of KV group 'indexer', only of mla; pass one for each group",
    });
    const wrong = { mla, indexer: indexer.with(2, 8) };
    expect((await errorOf(manager.save({ ...save, blockTable: wrong }).done)).message).toBe(
      "entry 2 of the block table of 'indexer' is 8; there are pages 0 to 7",
    );
  });
});

describe('programs of an engine on its own pages', () => {
  it('lists have an entry a page, and lie in the slot table', async () => {
    const manager = openManager(attention, scratchDirectory());
    const [from, to] = [new PagedEngine('nhd', 8, 4), new PagedEngine('hnd', 8, 2)];
    const geometries = { from: manager.adopt(from.geometry), to: manager.adopt(to.geometry) };
    from.write([6, 1, 3, 0], 0, 0, 16, 9);
    const source = manager.list({ geometry: geometries.from, blocks: 2, blockTable: [6, 1, 3, 0] });
    const table = [5, 0, 7, 1, 2, 6, 4, 3];
    const target = manager.list({ geometry: geometries.to, blocks: 2, blockTable: table });
    const { engine } = manager;
    const copy = {
      ...{ op: 'copy' as const, ...geometries, blocks: 2, firstBlock: 0, layers: attention.layers },
      ...{ fromSlots: source.offset, toSlots: target.offset, tokenBegin: 3, tokenEnd: 15 },
    };
    await engine.submit([copy]).done;
    expect(to.holds(table, 0, 3, 15, 9)).toBe(true);
    // 8 entries would end 1 after the table.
    const last = (1 << 16) - 7;
    for (const wrong of [{ toSlots: last }, { fromSlots: (1 << 16) - 3 }]) {
      const error = await errorOf(engine.submit([{ ...copy, ...wrong }]).done);
      expect(error.code).toBe('INVALID_ARGUMENT');
    }
    source.release();
    source.release();
    target.release();
    expect(engine.slotTable.available).toBe(1 << 16);
  });

  it('a peer takes blocks into slots, not into pages', async () => {
    const runtime = openRuntime();
    const [here, there] = [0, 1].map(() => openManager(attention, scratchDirectory(), { runtime }));
    const pages = new PagedEngine('nhd', 8, 4);
    const memory = new PagedEngine('nhd', 8, 4);
    const send = {
      ...{ op: 'send' as const, peer: await here!.peer(there!.name), layers: attention.layers },
      ...{ from: here!.adopt(pages.geometry), fromSlots: 0, toSlots: 0 },
      ...{ blocks: 1, firstBlock: 0, tokenBegin: 0, tokenEnd: 8 },
    };
    const to = there!.adopt(memory.geometry);
    expect((await errorOf(here!.engine.submit([{ ...send, to }]).done)).code).toBe('INVALID_ARGUMENT');
    // Its buffer is slots: pages are gathered on the way.
    const list = here!.list({ geometry: send.from, blocks: 1, blockTable: [2, 5] });
    pages.write([2, 5], 0, 0, 8, 4);
    const sent = { ...send, fromSlots: list.offset, to: there!.buffer.geometry };
    expect((await here!.engine.submit([sent]).done).bytesMoved).toBe(attention.fullBlockBytes);
  });
});
