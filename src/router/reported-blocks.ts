/**
 * The blocks that an instance holds by its own account: 53 bits of each block's key. Engines evict the end of a prefix
 * before its beginning, so what is held of a prompt is a leading part of it. Whoever feeds it bounds it.
 */
export class ReportedBlocks {
  /** Nothing is missing: what is not here is not held. Otherwise what is here is held, and more may be. */
  isWhole = false;
  /** How often each was added: an engine may tell apart what has one key. */
  readonly #counts = new Map<number, number>();

  get size(): number {
    return this.#counts.size;
  }

  add(low: number, high: number): void {
    const key = keyOf(low, high);
    this.#counts.set(key, (this.#counts.get(key) ?? 0) + 1);
  }

  /** Does nothing where it is not held. */
  remove(low: number, high: number): void {
    const key = keyOf(low, high);
    const count = this.#counts.get(key) ?? 0;
    if (count > 1) this.#counts.set(key, count - 1);
    else this.#counts.delete(key);
  }

  clear(): void {
    this.#counts.clear();
  }

  /** How many of the blocks [first, first + count) are held: a leading part. */
  match(keys: Uint32Array, first: number, count: number): number {
    let [least, most] = [0, count];
    while (least < most) {
      const middle = (least + most + 1) >>> 1;
      const at = 2 * (first + middle - 1);
      if (this.#counts.has(keyOf(keys[at]!, keys[at + 1]!))) least = middle;
      else most = middle - 1;
    }
    return least;
  }
}

function keyOf(low: number, high: number): number {
  return (high & 0x1fffff) * 0x100000000 + low;
}
