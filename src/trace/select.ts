import { createHash } from 'node:crypto';

export interface SelectOptions {
  /** How many to choose; all where fewer are offered. */
  readonly count: number;
  readonly seed: number;
}

/**
 * Chooses `count` items by a hash of seed and id, the lowest first: a sample that depends on neither the
 * order nor the other items, so that a larger count adds to a smaller one. Holds `count` items at a time.
 * Returns them by rising hash; items of equal hash (equal ids) keep their order.
 */
export async function selectSessions<T extends { readonly id: string }>(
  items: AsyncIterable<T> | Iterable<T>,
  options: SelectOptions,
): Promise<T[]> {
  const heap = new LowestHeap<T>(options.count);
  for await (const item of items) heap.offer(selectionHash(options.seed, item.id), item);
  return heap.sorted();
}

/** The 128-bit value that ranks an id, in hexadecimal. */
export function selectionHash(seed: number, id: string): string {
  return createHash('sha256').update(`${seed}\0select\0${id}`).digest('hex').slice(0, 32);
}

interface Ranked<T> {
  readonly hash: string;
  readonly sequence: number;
  readonly item: T;
}

/** A binary heap with the greatest of the kept items on top, ready to make room for a lower one. */
class LowestHeap<T> {
  readonly #limit: number;
  readonly #heap: Ranked<T>[] = [];
  #offered = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  offer(hash: string, item: T): void {
    const entry = { hash, sequence: this.#offered++, item };
    const top = this.#heap[0];
    if (this.#heap.length < this.#limit) {
      this.#heap.push(entry);
      this.#siftUp(this.#heap.length - 1);
    } else if (top !== undefined && compare(entry, top) < 0) {
      this.#heap[0] = entry;
      this.#siftDown(0);
    }
  }

  sorted(): T[] {
    return [...this.#heap].sort(compare).map((entry) => entry.item);
  }

  #siftUp(from: number): void {
    for (let child = from; child > 0;) {
      const parent = (child - 1) >> 1;
      if (!this.#swapIfGreater(child, parent)) return;
      child = parent;
    }
  }

  #siftDown(from: number): void {
    for (let parent = from; ;) {
      const left = 2 * parent + 1;
      const [a, b] = [this.#heap[left], this.#heap[left + 1]];
      if (a === undefined) return;
      const child = b !== undefined && compare(b, a) > 0 ? left + 1 : left;
      if (!this.#swapIfGreater(child, parent)) return;
      parent = child;
    }
  }

  #swapIfGreater(child: number, parent: number): boolean {
    const [c, p] = [this.#heap[child], this.#heap[parent]];
    if (c === undefined || p === undefined || compare(c, p) <= 0) return false;
    this.#heap[child] = p;
    this.#heap[parent] = c;
    return true;
  }
}

function compare<T>(a: Ranked<T>, b: Ranked<T>): number {
  if (a.hash !== b.hash) return a.hash < b.hash ? -1 : 1;
  return a.sequence - b.sequence;
}
