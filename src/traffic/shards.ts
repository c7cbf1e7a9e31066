/**
 * The ranks of a tensor-parallel engine in one process. Each has a TrafficManager with its shard's layout and a
 * store of its own shard; a prefix is a hit as far as every rank has it. What all ranks hold alike (an MLA latent:
 * a model without sharded groups) is stored once: the ranks share a store, and each saves a part of the blocks.
 *
 * Ranks in processes of their own do the same with the collectives they have: look up, agree on the minimum of
 * `hitBlocks`, `chain.trim(minimum)`.
 */
import { DualPathError } from '../errors/index.js';
import { skipBlocks } from './block-table.js';
import type { CallOptions } from './interruption.js';
import type { KeyChain } from './key-chain.js';
import { LoadError, type LoadOperation, type LoadOptions, type LoadResult } from './load.js';
import type { SaveOptions, SaveResult } from './save.js';
import type { TrafficManager } from './traffic-manager.js';

/** Where a rank's blocks lie. */
export type RankPlaces = Pick<LoadOptions, 'geometry' | 'blockTable'>;

export class ShardedLookup {
  /** Of each rank, trimmed to what all have. */
  readonly chains: readonly KeyChain[];
  readonly hitBlocks: number;

  constructor(chains: readonly KeyChain[]) {
    this.chains = chains;
    this.hitBlocks = Math.min(...chains.map((chain) => chain.hitBlocks));
    for (const chain of chains) chain.trim(this.hitBlocks);
  }

  get hitTokens(): number {
    return this.chains[0]!.hitTokens;
  }

  /** Idempotent. */
  release(): void {
    for (const chain of this.chains) chain.release();
  }
}

export class ShardedTraffic {
  readonly ranks: readonly TrafficManager[];
  /** Every rank holds the same bytes: they are stored once. */
  readonly replicated: boolean;

  /** @throws INVALID_ARGUMENT unless ranks 0 to n-1 of one model and block size are given, in order */
  constructor(ranks: readonly TrafficManager[]) {
    this.ranks = ranks;
    const first = ranks[0]?.layout;
    this.replicated = first?.model.groups.every((group) => group.sharding === 'replicated') ?? false;
    ranks.forEach(({ name, layout }, rank) => {
      const { shard } = layout;
      const fits =
        layout.blockTokens === first?.blockTokens &&
        JSON.stringify(layout.model) === JSON.stringify(first.model) &&
        (this.replicated || (shard.rank === rank && shard.size === ranks.length));
      if (fits) return;
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `rank ${rank} of ${ranks.length} is '${name}' with shard ${shard.rank} of ${shard.size}; pass every rank of one ` +
          'model and block size, in order, each with its own shard',
        { rank, engine: name, shard_rank: shard.rank, shard_size: shard.size },
      );
    });
    if (first === undefined) throw new DualPathError('INVALID_ARGUMENT', 'no ranks; pass at least one');
  }

  /** What every rank has of a prefix. @throws as TrafficManager.lookup, when every rank is through */
  async lookup(tokens: Uint32Array, options: CallOptions = {}): Promise<ShardedLookup> {
    const chains = await everyone(
      this.ranks.map((rank) => rank.lookup(tokens, options)),
      (chain) => chain.release(),
    );
    return new ShardedLookup(chains);
  }

  /**
   * Loads on every rank. `done` ends when all ranks have; it rejects with the LoadError that failed first in the
   * sequence: blocks before its `failedFromBlock` are there on every rank.
   */
  load(
    lookup: ShardedLookup,
    places: readonly RankPlaces[],
    options: Omit<LoadOptions, 'chain' | 'geometry' | 'blockTable' | 'layerCounter'> = {},
  ): { readonly ranks: readonly LoadOperation[]; readonly done: Promise<readonly LoadResult[]> } {
    this.#checkPlaces(places);
    const ranks = this.ranks.map((rank, i) =>
      rank.load({ ...options, ...places[i]!, chain: lookup.chains[i]! }),
    );
    const done = everyone(ranks.map((load) => load.done));
    done.catch(() => undefined); // whoever awaits it hears of it
    return { ranks, done };
  }

  /** Saves on every rank its own shard, or of what all hold alike a part on each. @throws the first rank's error */
  async save(
    lookup: ShardedLookup,
    places: readonly RankPlaces[],
    options: Omit<SaveOptions, 'chain' | 'geometry' | 'blockTable'>,
  ): Promise<readonly SaveResult[]> {
    this.#checkPlaces(places);
    return await everyone(
      this.ranks.map(async (rank, i) => {
        const chain = lookup.chains[i]!;
        const { geometry, blockTable } = places[i]!;
        if (!this.replicated) return await rank.save({ ...options, geometry, blockTable, chain }).done;
        const { firstBlock, blocks } = this.#partOf(i, options);
        // The block table begins with the save's first block: the blocks before this part are skipped in it.
        const shape = rank.tableShape(geometry);
        const skipped = skipBlocks(shape, blockTable, options.firstBlock, firstBlock);
        return await rank.save({ ...options, firstBlock, blocks, geometry, blockTable: skipped, chain }).done;
      }),
    );
  }

  #partOf(
    rank: number,
    { firstBlock, blocks }: { firstBlock: number; blocks: number },
  ): {
    firstBlock: number;
    blocks: number;
  } {
    const from = Math.floor((rank * blocks) / this.ranks.length);
    const to = Math.floor(((rank + 1) * blocks) / this.ranks.length);
    return { firstBlock: firstBlock + from, blocks: to - from };
  }

  #checkPlaces(places: readonly RankPlaces[]): void {
    if (places.length === this.ranks.length) return;
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `places of ${places.length} ranks given, there are ${this.ranks.length}; pass each rank's geometry and block table`,
      { places: places.length, ranks: this.ranks.length },
    );
  }
}

/** All of them, when all have ended; of several errors the one that says least has arrived. */
async function everyone<T>(
  promises: readonly Promise<T>[],
  undo?: (value: T) => void,
): Promise<readonly T[]> {
  const results = await Promise.allSettled(promises);
  const values = results.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
  const errors = results.flatMap((result) =>
    result.status === 'rejected' ? [result.reason as unknown] : [],
  );
  if (errors.length === 0) return values;
  if (undo !== undefined) values.forEach(undo);
  const reach = (error: unknown): number => (error instanceof LoadError ? error.failedFromBlock : -1);
  throw errors.reduce((least, error) => (reach(error) < reach(least) ? error : least));
}
