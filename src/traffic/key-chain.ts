/** The keys of a sequence's full blocks, in the engine's key table, and how many of them are stored. */
import type { BlockLayout } from '../layout/index.js';
import type { TransferEngine } from '../transfer/index.js';

export class KeyChain {
  /** Full blocks that have keys now. */
  blocks: number;
  /** Leading blocks that the look-up found: no collector of this host evicts them before release(). */
  readonly storedBlocks: number;
  /** Of these, whole ones that may be loaded: at least one token stays to be computed. */
  hitBlocks: number;
  /** Index in the key table of block 0's key. */
  readonly offset: number;
  readonly #engine: TransferEngine;
  readonly #layout: BlockLayout;
  readonly #capacity: number;
  #released = false;

  private constructor(
    engine: TransferEngine,
    layout: BlockLayout,
    offset: number,
    capacity: number,
    blocks: number,
    storedBlocks: number,
    hitBlocks: number,
  ) {
    this.#engine = engine;
    this.#layout = layout;
    this.offset = offset;
    this.#capacity = capacity;
    this.blocks = blocks;
    this.storedBlocks = storedBlocks;
    this.hitBlocks = hitBlocks;
  }

  /** Whether the keys stand in this engine's key table. */
  isOf(engine: TransferEngine): boolean {
    return this.#engine === engine && !this.#released;
  }

  /** No more than these blocks are hits: what the other shards have of the prefix. */
  trim(blocks: number): void {
    this.hitBlocks = Math.min(this.hitBlocks, blocks);
  }

  get hitTokens(): number {
    return this.hitBlocks * this.#layout.blockTokens;
  }

  /** @param extraBlocks room for blocks that generation will fill */
  static async hash(
    engine: TransferEngine,
    layout: BlockLayout,
    tokens: Uint32Array,
    lookUp: boolean,
    extraBlocks = 0,
    signal?: AbortSignal,
  ): Promise<KeyChain> {
    const blocks = layout.fullBlocksFor(tokens.length);
    const capacity = blocks + extraBlocks;
    const offset = engine.keyTable.take(capacity);
    try {
      const { blockTokens } = layout;
      const range = { firstToken: 0, blockTokens, blocks, keyOffset: offset, lookUp };
      const stored = await engine.hash(tokens, range, signal);
      const usable = layout.fullBlocksFor(Math.max(tokens.length - 1, 0));
      const hits = Math.min(stored, usable);
      return new KeyChain(engine, layout, offset, capacity, blocks, stored, hits);
    } catch (error) {
      engine.keyTable.giveBack(offset, capacity);
      throw error;
    }
  }

  /** Keys of the blocks that `tokens`, the whole sequence so far, has filled since. */
  async extend(tokens: Uint32Array): Promise<void> {
    const blocks = Math.min(this.#layout.fullBlocksFor(tokens.length), this.#capacity) - this.blocks;
    if (blocks <= 0) return;
    const { blockTokens } = this.#layout;
    await this.#engine.hash(tokens, {
      firstToken: this.blocks * blockTokens,
      blockTokens,
      blocks,
      ...(this.blocks === 0 ? {} : { parentKey: this.offset + this.blocks - 1 }),
      keyOffset: this.offset + this.blocks,
      lookUp: false,
    });
    this.blocks += blocks;
  }

  /** Idempotent. */
  release(): void {
    if (this.#released) return;
    this.#released = true;
    this.#engine.releaseBlocks(this.offset, this.storedBlocks, this.blocks);
    this.#engine.keyTable.giveBack(this.offset, this.#capacity);
  }
}
