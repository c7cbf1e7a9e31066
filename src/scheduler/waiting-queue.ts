import { DualPathError } from '../errors/index.js';
import type { RequestDescription } from './types.js';

const COMPACT_MIN_ENTRIES = 64;

/**
 * The bounded FIFO of requests that have not been admitted. Push, head and removal of any entry take constant
 * time on average: a removed entry leaves its place behind, and places are swept when most are empty.
 */
export class WaitingQueue {
  readonly #limit: number;
  readonly #entries = new Map<string, RequestDescription>();
  #order: RequestDescription[] = [];
  #first = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  get size(): number {
    return this.#entries.size;
  }

  has(request: string): boolean {
    return this.#entries.has(request);
  }

  /** @throws CAPACITY_EXHAUSTED when the queue is full */
  push(description: RequestDescription): void {
    if (this.#entries.size >= this.#limit) {
      throw new DualPathError(
        'CAPACITY_EXHAUSTED',
        `request ${description.request} cannot wait: ${this.#entries.size} requests already do, the limit is ` +
          `${this.#limit}; submit it again later, or raise maxWaiting`,
        { request: description.request, waiting: this.#entries.size, limit: this.#limit },
      );
    }
    this.#entries.set(description.request, description);
    this.#order.push(description);
    this.#compact();
  }

  /** The request that has waited longest. */
  head(): RequestDescription | undefined {
    for (; this.#first < this.#order.length; this.#first++) {
      const description = this.#order[this.#first];
      // By identity: a request may have been cancelled and submitted again under the same name.
      if (description && this.#entries.get(description.request) === description) return description;
    }
    return undefined;
  }

  /** Removes one request; false if it is not waiting. */
  remove(request: string): boolean {
    return this.#entries.delete(request);
  }

  /** Waiting requests, longest first. */
  *[Symbol.iterator](): IterableIterator<RequestDescription> {
    for (const description of this.#order.slice(this.#first)) {
      if (this.#entries.get(description.request) === description) yield description;
    }
  }

  #compact(): void {
    if (this.#order.length < COMPACT_MIN_ENTRIES || this.#order.length < 2 * this.#entries.size) return;
    this.#order = [...this];
    this.#first = 0;
  }
}
