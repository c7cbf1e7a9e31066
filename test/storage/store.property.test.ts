/** The store against a plain model: a set of paths in a tree for each namespace. */
import fc from 'fast-check';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { BlockStore, StoreAdmin } from '../../src/storage/index.js';
import type { KeyChain, TrafficManager } from '../../src/traffic/index.js';
import { errorOf, headsLayout, openManager, scratchDirectory } from '../traffic/support.js';

const layout = headsLayout(1);
const spaces = ['', 'a'] as const;
type Space = (typeof spaces)[number];

/** A chain of blocks, each of one of three kinds: chains share prefixes. */
type Path = readonly number[];

type Step =
  | { readonly do: 'save' | 'lookup'; readonly space: Space; readonly by: number; readonly path: Path }
  | { readonly do: 'spoil'; readonly space: Space; readonly by: number; readonly path: Path }
  | { readonly do: 'evict'; readonly keep: number; readonly held: Path }
  | { readonly do: 'delete' };

const path = fc.array(fc.nat({ max: 2 }), { minLength: 1, maxLength: 4 });
const space = fc.constantFrom(...spaces);
const by = fc.nat({ max: 1 });
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ do: fc.constant('save' as const), space, by, path }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('lookup' as const), space, by, path }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('spoil' as const), space, by, path }) },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constant('evict' as const), keep: fc.nat({ max: 12 }), held: path }),
  },
  { weight: 1, arbitrary: fc.constant({ do: 'delete' as const }) },
);

const tokensOf = (blocks: Path): Uint32Array =>
  Uint32Array.from([...blocks.flatMap((kind) => [kind, kind, 7, 7]), 99]);

class Pair {
  readonly admin: StoreAdmin;
  readonly fileBytes: number;
  /** Two stores on one directory, as two processes would have them, for each namespace. */
  readonly #managers: Record<Space, TrafficManager[]>;
  /** What must be stored: the file of each block by "<namespace>/<path>". */
  readonly model = new Map<string, string>();
  readonly #directory = scratchDirectory();

  constructor() {
    this.#managers = { '': this.#open(''), a: this.#open('a') };
    this.fileBytes = this.#managers[''][0]!.store.file.fileBytes;
    this.admin = StoreAdmin.open(join(this.#directory, 'store'));
  }

  #open(name: Space): TrafficManager[] {
    return [0, 1].map(() =>
      openManager(layout, this.#directory, {
        store: BlockStore.open({
          path: join(this.#directory, 'store'),
          layout,
          indexCapacity: 1000,
          ...(name === '' ? {} : { namespace: name }),
        }),
      }),
    );
  }

  /** Ages are written in the background. */
  async #settle(): Promise<void> {
    const stores = Object.values(this.#managers).flatMap((managers) => managers.map(({ store }) => store));
    const queued = (): number => stores.reduce((sum, store) => sum + store.statistics().agesQueued, 0);
    await expect.poll(queued, { timeout: 30_000, interval: 1 }).toBe(0);
  }

  prefix(name: Space, blocks: Path): number {
    const missing = blocks.findIndex((_, i) => !this.model.has(this.name(name, blocks.slice(0, i + 1))));
    return missing < 0 ? blocks.length : missing;
  }

  name(name: Space, blocks: Path): string {
    return `${name}/${blocks.join('')}`;
  }

  async save(name: Space, index: number, blocks: Path): Promise<void> {
    const manager = this.#managers[name][index]!;
    const chain = await manager.hash(tokensOf(blocks));
    const slots = await manager.buffer.take(blocks.length);
    const { geometry } = manager.buffer;
    const list = { geometry, keys: chain.offset, slots: slots.offset, blocks: blocks.length };
    await manager.engine.submit([{ op: 'write', ...list, firstBlock: 0 }]).done;
    blocks.forEach((_, i) => {
      const file = manager.engine.handle.blockPath(chain.offset + i);
      this.model.set(this.name(name, blocks.slice(0, i + 1)), file);
    });
    slots.release();
    chain.release();
  }

  async lookup(name: Space, index: number, blocks: Path): Promise<KeyChain> {
    const chain = await this.#managers[name][index]!.lookup(tokensOf(blocks));
    expect(chain.hitBlocks).toBe(this.prefix(name, blocks));
    return chain;
  }

  /** Spoils the last block of a path; reading it finds that out, and from then on it is a miss. */
  async spoil(name: Space, index: number, blocks: Path): Promise<void> {
    const file = this.model.get(this.name(name, blocks));
    if (file === undefined || this.prefix(name, blocks) < blocks.length) return;
    const bytes = readFileSync(file);
    bytes[4096 + blocks.length]! ^= 0x10;
    writeFileSync(file, bytes);
    const manager = this.#managers[name][index]!;
    const chain = await this.lookup(name, index, blocks);
    const slots = await manager.buffer.take(blocks.length);
    const { geometry } = manager.buffer;
    const list = { geometry, keys: chain.offset, slots: slots.offset, blocks: blocks.length };
    const error = await errorOf(manager.engine.submit([{ op: 'read', ...list }]).done);
    expect([error.code, error.details['block']]).toEqual(['BAD_BLOCK', blocks.length - 1]);
    slots.release();
    chain.release();
    this.model.delete(this.name(name, blocks));
    // The other process still has it in its index, and would learn of it by a read that misses.
    this.#managers[name] = this.#open(name);
  }

  async evict(keep: number, held: Path): Promise<void> {
    const chain = await this.lookup('', 0, held);
    await this.#settle();
    const before = new Map(this.model);
    const heldNames = held.slice(0, chain.hitBlocks).map((_, i) => this.name('', held.slice(0, i + 1)));
    const { eviction } = await this.admin.gc({ capacityBytes: keep * this.fileBytes });
    expect(eviction).toMatchObject({ blocks: before.size, failedBlocks: 0 });
    for (const [name, file] of before) if (!existsSync(file)) this.model.delete(name);
    expect(before.size - this.model.size).toBe(eviction?.evictedBlocks);
    for (const name of heldNames) expect(this.model.has(name)).toBe(true);
    expect(this.model.size).toBeLessThanOrEqual(Math.max(Math.min(before.size, keep), 0) + heldNames.length);
    expect(this.model.size).toBeGreaterThanOrEqual(Math.min(before.size, keep));
    // Leaf first: who stayed has not lost what it follows.
    for (const name of this.model.keys()) {
      const parent = name.slice(0, -1);
      if (before.has(parent)) expect([name, this.model.has(parent)]).toEqual([name, true]);
    }
    chain.release();
  }

  async deleteSpace(): Promise<void> {
    const blocks = [...this.model.keys()].filter((name) => name.startsWith('a/'));
    expect((await this.admin.deleteNamespace('a')).blocks).toBe(blocks.length);
    for (const name of blocks) this.model.delete(name);
    (await this.lookup('a', 0, [0, 1])).release(); // by a store that was open before
    this.#managers.a = this.#open('a');
  }
}

async function take(pair: Pair, action: Step): Promise<void> {
  switch (action.do) {
    case 'save':
      return await pair.save(action.space, action.by, action.path);
    case 'lookup':
      return (await pair.lookup(action.space, action.by, action.path)).release();
    case 'spoil':
      return await pair.spoil(action.space, action.by, action.path);
    case 'evict':
      return await pair.evict(action.keep, action.held);
    case 'delete':
      return await pair.deleteSpace();
  }
}

it('does what a plain set of paths does', async () => {
  const pair = new Pair();
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 4, maxLength: 14 }), async (steps) => {
      await pair.admin.gc({ capacityBytes: 0 });
      pair.model.clear();
      for (const action of steps) await take(pair, action);
      const { blocks, namespaces, quarantined } = await pair.admin.stat();
      expect(blocks).toBe(pair.model.size);
      expect(namespaces.map(({ name }) => name)).toEqual(['', 'a']);
      expect(await pair.admin.verify()).toMatchObject({ blocks, badBlocks: 0 });
      expect(quarantined.files).toBeLessThanOrEqual(64);
    }),
    { numRuns: 12 },
  );
}, 120_000);
