/** A process that finds the store after the crash: what is there must be right. */
import { BlockStore, LoadError, Runtime, sequenceGeometry, TrafficManager } from '../../dist/index.js';
import { blocksOf, fillBlock, layout, mostBlocks, tokensOf } from './sequences.mjs';

export class Survivor {
  #runtime = new Runtime();
  #store;
  #manager;
  #geometry;
  #bytes;
  #seed;

  constructor(path, seed) {
    this.#seed = seed;
    this.#store = BlockStore.open({ path, layout });
    this.#manager = new TrafficManager({
      ...{ name: 'survivor', layout, store: this.#store, bufferBlocks: mostBlocks, runtime: this.#runtime },
    });
    const memory = sequenceGeometry(layout, mostBlocks, 'memory');
    this.#geometry = this.#manager.adopt(memory);
    this.#bytes = Buffer.from(memory.arena.buffer());
  }

  /** @returns the leading blocks of sequence n that are served, and which of them (or -1) has a wrong byte */
  async read(n) {
    const chain = await this.#manager.lookup(tokensOf(this.#seed, n));
    try {
      const blockTable = Array.from({ length: chain.hitBlocks }, (_, i) => i);
      const blocks = await this.#manager
        .load({ chain, geometry: this.#geometry, blockTable })
        .done.then(({ blocks }) => blocks)
        .catch((error) => {
          if (error instanceof LoadError && error.code === 'BAD_BLOCK') return error.failedFromBlock;
          throw error;
        });
      return { blocks, wrongBlock: this.#wrongBlock(n, blocks) };
    } finally {
      chain.release();
    }
  }

  #wrongBlock(n, blocks) {
    const { fullBlockBytes } = layout;
    const expected = new Uint32Array(fullBlockBytes / 4);
    for (let block = 0; block < blocks; block++) {
      fillBlock(expected, this.#seed, n, block);
      const at = block * fullBlockBytes;
      if (Buffer.from(expected.buffer).compare(this.#bytes, at, at + fullBlockBytes) !== 0) return block;
    }
    return -1;
  }

  /** Saves sequence n whole: work goes on after the crash. */
  async save(n) {
    const blocks = blocksOf(this.#seed, n);
    const words = new Uint32Array(this.#bytes.buffer);
    const blockWords = layout.fullBlockBytes / 4;
    for (let block = 0; block < blocks; block++) {
      fillBlock(words.subarray(block * blockWords, (block + 1) * blockWords), this.#seed, n, block);
    }
    const chain = await this.#manager.hash(tokensOf(this.#seed, n));
    const blockTable = Array.from({ length: blocks }, (_, i) => i);
    await this.#manager.save({ chain, firstBlock: 0, blocks, geometry: this.#geometry, blockTable }).done;
    chain.release();
    return blocks;
  }

  get badBlocks() {
    return this.#manager.engine.statistics().badBlocks;
  }

  async close() {
    await this.#manager.close();
    this.#runtime.close();
  }
}
