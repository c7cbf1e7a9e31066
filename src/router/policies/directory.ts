import { hash32 } from '../hash.js';
import type { RoutedRequest } from '../request.js';

/**
 * Which instance computed a block last. A table of a fixed size in which a block takes the place of another with the same
 * hash, so it forgets, and what it says must be checked with the instance's own index.
 */
export class BlockDirectory {
  readonly #mask: number;
  readonly #low: Uint32Array;
  readonly #high: Uint32Array;
  /** 1 more than the instance's index; 0 for none. */
  readonly #holder: Uint32Array;

  constructor(blocks: number) {
    const places = 2 ** Math.ceil(Math.log2(Math.max(2, blocks)));
    this.#mask = places - 1;
    this.#low = new Uint32Array(places);
    this.#high = new Uint32Array(places);
    this.#holder = new Uint32Array(places);
  }

  get bytes(): number {
    return 12 * this.#low.length;
  }

  store({ keys, firstBlock, blocks, instance }: RoutedRequest): void {
    for (let block = firstBlock; block < firstBlock + blocks; block++) {
      const place = this.#place(keys, block);
      this.#low[place] = keys[2 * block]!;
      this.#high[place] = keys[2 * block + 1]!;
      this.#holder[place] = instance.index + 1;
    }
  }

  /** Index of the instance that computed the deepest known block of a prompt, from block `from` on; -1 for none. */
  holderOf(request: RoutedRequest, from: number): number {
    let [low, high] = [from, request.hitBlocksMax];
    let holder = 0;
    // A prompt's known blocks are its first ones, but for what the table has forgotten.
    while (low < high) {
      const middle = (low + high) >>> 1;
      const found = this.#find(request.keys, request.firstBlock + middle);
      if (found === 0) high = middle;
      else {
        holder = found;
        low = middle + 1;
      }
    }
    return holder - 1;
  }

  #find(keys: Uint32Array, block: number): number {
    const place = this.#place(keys, block);
    const isThere = this.#low[place] === keys[2 * block] && this.#high[place] === keys[2 * block + 1];
    return isThere ? this.#holder[place]! : 0;
  }

  #place(keys: Uint32Array, block: number): number {
    return hash32(keys[2 * block]!, keys[2 * block + 1]!, 0x165667b1) & this.#mask;
  }
}
