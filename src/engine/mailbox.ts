/** A queue with one reader that waits; bounded by what its writers may have under way. */
import { Deferred } from './deferred.js';

export class Mailbox<T> implements AsyncIterable<T> {
  readonly #items: T[] = [];
  #waiting: Deferred<void> | undefined;
  #closed = false;
  #error: Error | undefined;

  push(item: T): void {
    this.#items.push(item);
    this.#wake();
  }

  /** The reader gets what is there, then the end: an exception when there is an error. */
  close(error?: Error): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#error = error;
    this.#wake();
  }

  #wake(): void {
    this.#waiting?.resolve();
    this.#waiting = undefined;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, void> {
    for (;;) {
      const item = this.#items.shift();
      if (item !== undefined) {
        yield item;
      } else if (this.#closed) {
        if (this.#error !== undefined) throw this.#error;
        return;
      } else {
        this.#waiting = new Deferred<void>();
        await this.#waiting.promise;
      }
    }
  }
}
