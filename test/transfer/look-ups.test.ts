/** Hashing and looking up off the JavaScript thread: whose tokens they are, how many at once, how they end. */
import { setMaxListeners } from 'node:events';
import { join } from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Worker } from 'node:worker_threads';
import { afterAll, describe, expect, it } from 'vitest';
import type { HashRange } from '../../src/binding/index.js';
import type { DualPathError } from '../../src/errors/index.js';
import { BlockStore, StoreAdmin } from '../../src/storage/index.js';
import type { TransferEngine } from '../../src/transfer/index.js';
import { headsLayout, openManager, saveSequence, scratchDirectory } from '../traffic/support.js';
import { errorOf, openEngine, sleep } from './support.js';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

const layout = headsLayout();
const blocks = 2048;
const range: HashRange = { firstToken: 0, blockTokens: 64, blocks, keyOffset: 0, lookUp: true };

// One store for all, and nothing in it: its 256 directories take their time.
const path = join(scratchDirectory(afterAll), 'store');

function openWithStore(chainCacheBytes?: number): TransferEngine {
  const options = chainCacheBytes === undefined ? {} : { chainCacheBytes };
  const store = BlockStore.open({ path, layout, ...options });
  return openEngine({ store: store.handle });
}

function fill(tokens: Uint32Array, seed: number): Uint32Array {
  for (let i = 0; i < tokens.length; i++) tokens[i] = Math.imul(i + seed, 2654435761);
  return tokens;
}

const plain = (seed = 1): Uint32Array => fill(new Uint32Array(64 * blocks), seed);
const shared = (seed = 1): Uint32Array => fill(new Uint32Array(new SharedArrayBuffer(256 * blocks)), seed);

/** Names of the files of all keys in the table, below the store's own path. */
const names = (engine: TransferEngine, count = blocks): string[] =>
  Array.from({ length: count }, (_, i) => engine.handle.blockPath(i).slice(-68));

const codeOf = (outcome: PromiseSettledResult<number>): string =>
  outcome.status === 'rejected' ? (outcome.reason as DualPathError).code : 'done';

describe('tokens', () => {
  it('give the same keys by comparing and by hashing, from either kind of memory', async () => {
    const engine = openWithStore();
    const without = openWithStore(0);
    await without.hash(plain(), range);
    const right = names(without);
    expect(new Set(right).size).toBe(blocks);
    for (const tokens of [plain(), plain(), shared(), shared()]) {
      await engine.hash(fill(plain(), 9), { ...range, blocks: 3 });
      expect(await engine.hash(tokens, range)).toBe(0);
      expect(names(engine)).toEqual(right);
    }
    expect(engine.statistics()).toMatchObject({ lookups: 8, lookupHashedBlocks: blocks + 3 });
    expect(without.statistics().lookupHashedBlocks).toBe(blocks);
  });

  it('that are transferred meanwhile are an error, and their memory is not needed', async () => {
    const engine = openWithStore();
    for (let i = 0; i < 20; i++) {
      const tokens = plain(i);
      const done = errorOf(engine.hash(tokens, range));
      structuredClone(tokens.buffer, { transfer: [tokens.buffer as ArrayBuffer] });
      collect();
      expect(await done).toMatchObject({ code: 'INVALID_ARGUMENT' });
      expect((await done).message).toMatch(/transferred or resized.*SharedArrayBuffer/);
    }
    // What was read of freed memory has left nothing wrong behind.
    const without = openWithStore(0);
    for (let i = 0; i < 20; i++) {
      await engine.hash(plain(i), range);
      await without.hash(plain(i), range);
      expect(names(engine)).toEqual(names(without));
    }
  });

  it('that are transferred meanwhile hold no blocks', async () => {
    const scratch = scratchDirectory();
    const manager = openManager(layout, scratch);
    const sequence = fill(new Uint32Array(4 * 16 + 1), 5);
    (await saveSequence(manager, sequence, 1)).release();
    const gone = errorOf(manager.lookup(sequence));
    structuredClone(sequence.buffer, { transfer: [sequence.buffer as ArrayBuffer] });
    expect(await gone).toMatchObject({ code: 'INVALID_ARGUMENT' });
    const admin = StoreAdmin.open(manager.store.path);
    expect((await admin.gc({ capacityBytes: 0 })).eviction).toMatchObject({ evictedBlocks: 16 });
    // Whereas a result holds what it found.
    const again = fill(new Uint32Array(4 * 16 + 1), 5);
    (await saveSequence(manager, again, 1)).release();
    const chain = await manager.lookup(again);
    expect((await admin.gc({ capacityBytes: 0 })).eviction).toMatchObject({ evictedBlocks: 0 });
    chain.release();
    expect((await admin.gc({ capacityBytes: 0 })).eviction).toMatchObject({ evictedBlocks: 16 });
  });

  it('whose buffer shrinks meanwhile are an error', async () => {
    const engine = openWithStore();
    type Resizable = ArrayBuffer & { resize(bytes: number): void };
    const make = ArrayBuffer as unknown as new (bytes: number, options: object) => Resizable;
    for (const left of [0, 4096, 256 * blocks - 4]) {
      const buffer = new make(256 * blocks, { maxByteLength: 256 * blocks });
      const done = errorOf(engine.hash(fill(new Uint32Array(buffer), 3), range));
      buffer.resize(left);
      expect(await done).toMatchObject({ code: 'INVALID_ARGUMENT' });
    }
  });

  it.each([
    ['too few', plain().subarray(1), {}],
    ['of another type', new Float32Array(64 * blocks) as unknown as Uint32Array, {}],
    ['of no length', plain(), { blockTokens: 0 }],
    ['beyond the key table', plain(), { keyOffset: 1 << 30 }],
    ['after a key beyond the table', plain(), { parentKey: 1 << 30 }],
    ['a negative number of blocks', plain(), { blocks: -1 }],
  ])('%s are refused', async (_, tokens, change) => {
    const engine = openWithStore();
    const error = await errorOf(engine.hash(tokens, { ...range, ...change }));
    expect(error.code).toBe('INVALID_ARGUMENT');
    expect(await engine.hash(plain(), range)).toBe(0);
  });
});

describe('many look-ups', () => {
  it('wait for their turn beyond 64', async () => {
    const engine = openWithStore();
    const tokens = plain();
    const many = Array.from({ length: 300 }, (_, i) =>
      engine.hash(tokens.subarray(64 * i), { ...range, blocks: 4, keyOffset: 4 * i }),
    );
    expect(await Promise.all(many)).toEqual(new Array(300).fill(0));
    expect(engine.statistics().lookups).toBe(300);
    // The add-on holds the limit by itself, too.
    const { handle } = engine;
    const direct = Array.from({ length: 64 }, (_, i) => handle.hash(tokens, i, 0, 64, 1, i, false));
    expect(() => handle.hash(tokens, 64, 0, 64, 1, 64, false)).toThrow(/64 look-ups are under way/);
    await Promise.all(direct);
    await handle.hash(tokens, 64, 0, 64, 1, 64, false);
  });

  it('are refused beyond 4,096 that wait', async () => {
    const engine = openWithStore();
    const one = { ...range, blocks: 1 };
    const tokens = plain();
    const many = Array.from({ length: 64 + 4096 }, () => engine.hash(tokens, one));
    expect((await errorOf(engine.hash(tokens, one))).code).toBe('CAPACITY_EXHAUSTED');
    await Promise.all(many);
    expect(await engine.hash(tokens, one)).toBe(0);
  });

  it('end with CANCELLED by their signal, wherever they are', async () => {
    const engine = openWithStore(0);
    const tokens = plain();
    expect((await errorOf(engine.hash(tokens, range, AbortSignal.abort()))).code).toBe('CANCELLED');
    const controller = new AbortController();
    setMaxListeners(0, controller.signal);
    const cancelled = Array.from({ length: 100 }, () => engine.hash(tokens, range, controller.signal));
    const others = Array.from({ length: 20 }, () => engine.hash(tokens, { ...range, keyOffset: blocks }));
    controller.abort();
    const outcomes = await Promise.allSettled(cancelled);
    const codes = outcomes.map(codeOf);
    expect(codes.filter((code) => code === 'CANCELLED').length).toBeGreaterThanOrEqual(100 - 64);
    expect(codes.every((code) => code === 'CANCELLED' || code === 'done')).toBe(true);
    expect(await Promise.all(others)).toEqual(new Array(20).fill(0));
  });

  it('that wait when their engine closes end with CLOSED, those under way with their result', async () => {
    const engine = openWithStore();
    const tokens = plain();
    const outcomes = Promise.allSettled(Array.from({ length: 100 }, () => engine.hash(tokens, range)));
    await engine.close();
    const codes = (await outcomes).map(codeOf);
    expect(codes).toEqual([...new Array(64).fill('done'), ...new Array(36).fill('CLOSED')]);
  });

  it('do not outlive a worker that is terminated under them', async () => {
    const own = join(scratchDirectory(), 'store');
    for (let i = 0; i < 10; i++) {
      const worker = new Worker(new URL('./look-up-worker.mjs', import.meta.url), { workerData: own });
      await new Promise((resolve) => worker.once('message', resolve));
      await sleep(i);
      await worker.terminate();
    }
  });
});
