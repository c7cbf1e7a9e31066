/** Tensor-parallel ranks: the hit is the minimum, what all hold alike is stored once. */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { blockLayout, type ModelDescription } from '../../src/layout/index.js';
import { BlockStore } from '../../src/storage/index.js';
import { LoadError, ShardedTraffic, type RankPlaces, type TrafficManager } from '../../src/traffic/index.js';
import {
  errorOf,
  headsModel,
  openManager,
  openRuntime,
  PagedMemory,
  scattered,
  scratchDirectory,
  tokens,
} from './support.js';

const model = (sharding: 'sharded' | 'replicated', name = 'tp'): ModelDescription => {
  const whole = headsModel();
  return { ...whole, name, groups: whole.groups.map((group) => ({ ...group, sharding })) };
};

interface Rank {
  readonly traffic: TrafficManager;
  readonly memory: PagedMemory;
  readonly geometry: number;
}

const blocks = 6;
const sequence = tokens(4 * blocks + 1, 5);
const tables = [scattered(blocks), scattered(blocks, 2)];

/** Two ranks, with a store each, or one of both. */
function openRanks(sharding: 'sharded' | 'replicated'): Rank[] {
  const path = scratchDirectory();
  const runtime = openRuntime();
  const layouts = [0, 1].map((rank) =>
    blockLayout(model(sharding), { blockTokens: 4, shard: { rank, size: 2 } }),
  );
  const shared =
    sharding === 'replicated'
      ? BlockStore.open({ path: join(path, 'store'), layout: layouts[0]! })
      : undefined;
  return layouts.map((layout, rank) => {
    const store = shared ?? BlockStore.open({ path: join(path, `store-${rank}`), layout });
    const traffic = openManager(layout, path, { runtime, store });
    const memory = new PagedMemory(layout, 2 * blocks + 3, 'nhd');
    return { traffic, memory, geometry: traffic.adopt(memory.geometry) };
  });
}

const places = (ranks: readonly Rank[]): RankPlaces[] =>
  ranks.map(({ geometry }, i) => ({ geometry, blockTable: tables[i]! }));

/** Saves the sequence; each rank has KV of its own, or both the same. */
async function save(ranks: readonly Rank[], alike: boolean): Promise<void> {
  const sharded = new ShardedTraffic(ranks.map((rank) => rank.traffic));
  ranks.forEach(({ memory }, i) => memory.write(tables[i]!, 4 * blocks, alike ? 1 : 1 + i));
  const lookup = await sharded.lookup(sequence);
  expect(lookup.hitBlocks).toBe(0);
  await sharded.save(lookup, places(ranks), { firstBlock: 0, blocks });
  lookup.release();
}

const clear = (ranks: readonly Rank[]): void => {
  for (const { memory } of ranks) memory.bytes.fill(PagedMemory.untouched);
};

describe('shards', () => {
  it('are saved and loaded on every rank', async () => {
    const ranks = openRanks('sharded');
    const sharded = new ShardedTraffic(ranks.map((rank) => rank.traffic));
    expect(sharded.replicated).toBe(false);
    await save(ranks, false);
    clear(ranks);
    const lookup = await sharded.lookup(sequence, { deadlineMs: 60_000 });
    expect([lookup.hitBlocks, lookup.hitTokens]).toEqual([blocks, 4 * blocks]);
    const load = sharded.load(lookup, places(ranks), { deadlineMs: 60_000 });
    await Promise.all(load.ranks.map((rank) => rank.layer(0)));
    expect(await load.done).toHaveLength(2);
    ranks.forEach(({ memory }, i) => expect(memory.firstDifference(tables[i]!, 4 * blocks, 1 + i)).toBe(-1));
    for (const { traffic } of ranks) expect(traffic.engine.statistics().writeBlocks).toBe(blocks);
  });

  it('the hit is what every rank has', async () => {
    const ranks = openRanks('sharded');
    const sharded = new ShardedTraffic(ranks.map((rank) => rank.traffic));
    const [first] = ranks;
    const { traffic, memory, geometry } = first!;
    memory.write(tables[0]!, 4 * blocks, 1);
    const chain = await traffic.hash(sequence);
    await traffic.save({ chain, firstBlock: 0, blocks, geometry, blockTable: tables[0]! }).done;
    expect((await sharded.lookup(sequence)).hitBlocks).toBe(0);
    const other = ranks[1]!;
    const otherChain = await other.traffic.hash(sequence);
    const some = { chain: otherChain, firstBlock: 0, blocks: 4, geometry: other.geometry };
    await other.traffic.save({ ...some, blockTable: tables[1]! }).done;
    const lookup = await sharded.lookup(sequence);
    expect([lookup.hitBlocks, ...lookup.chains.map((its) => its.hitBlocks)]).toEqual([4, 4, 4]);
    expect(lookup.chains[0]!.storedBlocks).toBe(blocks);
    const results = await sharded.load(lookup, places(ranks)).done;
    expect(results.map((result) => result.blocks)).toEqual([4, 4]);
  });

  it('a load that fails on one rank says what every rank has, when all have ended', async () => {
    const ranks = openRanks('sharded');
    const sharded = new ShardedTraffic(ranks.map((rank) => rank.traffic));
    await save(ranks, false);
    const lookup = await sharded.lookup(sequence);
    const gone = (rank: number, block: number): void => {
      const { engine } = ranks[rank]!.traffic;
      rmSync(engine.handle.blockPath(lookup.chains[rank]!.offset + block));
    };
    gone(0, 5);
    gone(1, 3);
    const load = sharded.load(lookup, places(ranks));
    const error = (await errorOf(load.done)) as LoadError;
    expect(error).toBeInstanceOf(LoadError);
    expect([error.code, error.failedFromBlock, error.failedToBlock]).toEqual(['BAD_BLOCK', 3, blocks]);
    const ended = await Promise.allSettled(load.ranks.map((rank) => rank.done));
    expect(ended.map((result) => result.status)).toEqual(['rejected', 'rejected']);
  });

  it('a look-up that fails on one rank leaves no keys behind', async () => {
    const ranks = openRanks('sharded');
    const sharded = new ShardedTraffic(ranks.map((rank) => rank.traffic));
    const before = ranks[0]!.traffic.engine.keyTable.available;
    await ranks[1]!.traffic.close();
    expect((await errorOf(sharded.lookup(sequence))).code).toBe('CLOSED');
    expect(ranks[0]!.traffic.engine.keyTable.available).toBe(before);
  });
});

describe('what all ranks hold alike', () => {
  it('is stored once, a part by each rank, and loaded by all', async () => {
    const ranks = openRanks('replicated');
    const sharded = new ShardedTraffic(ranks.map((rank) => rank.traffic));
    expect(sharded.replicated).toBe(true);
    await save(ranks, true);
    for (const { traffic } of ranks) {
      expect(traffic.engine.statistics()).toMatchObject({ writeBlocks: 3, writeSkippedBlocks: 0 });
    }
    clear(ranks);
    const lookup = await sharded.lookup(sequence);
    expect(lookup.hitBlocks).toBe(blocks);
    await sharded.load(lookup, places(ranks)).done;
    ranks.forEach(({ memory }, i) => expect(memory.firstDifference(tables[i]!, 4 * blocks, 1)).toBe(-1));
  });
});

describe('ranks that do not belong together', () => {
  it.each([
    ['none', () => [], /no ranks/],
    ['in the wrong order', () => openRanks('sharded').reverse(), /rank 0 of 2 is .* with shard 1 of 2/],
    ['one of two', () => openRanks('sharded').slice(0, 1), /rank 0 of 1 is .* with shard 0 of 2/],
    ['of two models', () => [openRanks('sharded')[0]!, openRanks('replicated')[1]!], /rank 1 of 2/],
  ] as [string, () => Rank[], RegExp][])('%s', async (_name, make, message) => {
    const ranks = make().map((rank) => rank.traffic);
    expect((await errorOf(() => new ShardedTraffic(ranks))).message).toMatch(message);
  });

  it('places for other ranks than there are', async () => {
    const ranks = openRanks('sharded');
    const sharded = new ShardedTraffic(ranks.map((rank) => rank.traffic));
    const lookup = await sharded.lookup(sequence);
    expect((await errorOf(() => sharded.load(lookup, places(ranks).slice(1)))).message).toMatch(
      /places of 1 ranks given, there are 2/,
    );
  });
});
