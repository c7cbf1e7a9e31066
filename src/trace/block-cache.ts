import { DualPathError } from '../errors/index.js';
import { fmix32 } from './mix.js';

/** Keys at most; the table then has 2^24 slots of 12 bytes. */
const maxKeys = 3 << 22;

/**
 * An infinite cache of blocks: a set of 64-bit keys, each with the session that stored it last. Open
 * addressing in typed arrays, because a set of millions of heap objects costs ten times the memory.
 */
export class BlockCache {
  #mask = (1 << 12) - 1;
  #size = 0;
  #low = new Uint32Array(this.#mask + 1);
  #high = new Uint32Array(this.#mask + 1);
  /** Session index + 1; 0 marks a free slot. */
  #owner = new Uint32Array(this.#mask + 1);

  /** The session that stored the block last, or -1. */
  ownerOf(low: number, high: number): number {
    return (this.#owner[this.#slotOf(low, high)] ?? 0) - 1;
  }

  store(low: number, high: number, session: number): void {
    let slot = this.#slotOf(low, high);
    if (this.#owner[slot] === 0) {
      if (this.#size >= maxKeys) {
        throw new DualPathError(
          'INVALID_ARGUMENT',
          `the workload has more than the ${maxKeys} distinct blocks that are counted at once: ` +
            'use larger blocks or fewer sessions',
          { limit_blocks: maxKeys },
        );
      }
      if (4 * (this.#size + 1) > 3 * (this.#mask + 1)) {
        this.#grow();
        slot = this.#slotOf(low, high);
      }
      this.#size++;
      this.#low[slot] = low;
      this.#high[slot] = high;
    }
    this.#owner[slot] = session + 1;
  }

  get size(): number {
    return this.#size;
  }

  #slotOf(low: number, high: number): number {
    let slot = low & this.#mask;
    while (this.#owner[slot] !== 0 && (this.#low[slot] !== low || this.#high[slot] !== high)) {
      slot = (slot + 1) & this.#mask;
    }
    return slot;
  }

  #grow(): void {
    const [low, high, owner] = [this.#low, this.#high, this.#owner];
    const slots = 2 * (this.#mask + 1);
    this.#mask = slots - 1;
    this.#low = new Uint32Array(slots);
    this.#high = new Uint32Array(slots);
    this.#owner = new Uint32Array(slots);
    for (let i = 0; i < owner.length; i++) {
      if (owner[i] === 0) continue;
      const [l, h] = [low[i] ?? 0, high[i] ?? 0];
      const slot = this.#slotOf(l, h);
      this.#low[slot] = l;
      this.#high[slot] = h;
      this.#owner[slot] = owner[i] ?? 0;
    }
  }
}

/**
 * 64-bit keys of a conversation's full blocks, each over its tokens and the key before it, so that a key
 * stands for the whole prefix. For counting in one process; what is stored is keyed by a cryptographic hash.
 */
export class BlockChain {
  readonly #blockTokens: number;
  readonly low: Uint32Array;
  readonly high: Uint32Array;

  constructor(blockTokens: number, maxTokens: number) {
    this.#blockTokens = blockTokens;
    const blocks = Math.floor(maxTokens / blockTokens);
    this.low = new Uint32Array(blocks);
    this.high = new Uint32Array(blocks);
  }

  /** Sets the keys of blocks [from, to) from the tokens; those before `from` must be in place. */
  update(tokens: Uint32Array, from: number, to: number): void {
    for (let block = from; block < to; block++) {
      let a = (block === 0 ? 0 : (this.low[block - 1] ?? 0)) | 0;
      let b = (block === 0 ? 0 : (this.high[block - 1] ?? 0)) | 0;
      const end = (block + 1) * this.#blockTokens;
      for (let i = block * this.#blockTokens; i < end; i++) {
        // Two differently seeded rounds of MurmurHash3, sharing the premixed token.
        let k = Math.imul(tokens[i] ?? 0, 0xcc9e2d51);
        k = Math.imul((k << 15) | (k >>> 17), 0x1b873593);
        a ^= k;
        a = (Math.imul((a << 13) | (a >>> 19), 5) + 0xe6546b64) | 0;
        b = Math.imul((b << 11) | (b >>> 21), 0x2c1b3c6d) + k;
        b = (b ^ (b >>> 15)) | 0;
      }
      this.low[block] = fmix32(a);
      this.high[block] = fmix32(b ^ 0x9e3779b9);
    }
  }
}
