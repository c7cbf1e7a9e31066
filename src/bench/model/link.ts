import type { EventQueue } from './events.js';

/** A node's storage link: reads first come, first served, at one rate; counts its bytes second by second. */
export class StorageLink {
  readonly #events: EventQueue;
  readonly #bytesPerS: number;
  readonly #bytesBySecond: number[] = [];
  #freeAtS = 0;
  #queuedBytes = 0;
  #reportedBytes = 0;

  constructor(events: EventQueue, bytesPerS: number) {
    this.#events = events;
    this.#bytesPerS = bytesPerS;
  }

  read(bytes: number, done: () => void): void {
    this.#queuedBytes += bytes;
    const startS = Math.max(this.#events.nowS, this.#freeAtS);
    this.#freeAtS = startS + bytes / this.#bytesPerS;
    for (let atS = startS; atS < this.#freeAtS;) {
      const second = Math.floor(atS);
      const endS = Math.min(second + 1, this.#freeAtS);
      this.#bytesBySecond[second] = (this.#bytesBySecond[second] ?? 0) + (endS - atS) * this.#bytesPerS;
      atS = endS;
    }
    this.#events.after(this.#freeAtS - this.#events.nowS, done);
  }

  /** What it has read since the last report, and how long that took: what a node reports of its link. */
  report(): { readonly bytes: number; readonly busyS: number } {
    const leftBytes = Math.max(0, this.#freeAtS - this.#events.nowS) * this.#bytesPerS;
    const bytes = Math.max(0, this.#queuedBytes - leftBytes - this.#reportedBytes);
    this.#reportedBytes += bytes;
    return { bytes, busyS: bytes / this.#bytesPerS };
  }

  /** Bytes of [fromS, toS), whole seconds. */
  bytes(fromS: number, toS: number): number {
    let sum = 0;
    for (let second = fromS; second < toS; second++) sum += this.#bytesBySecond[second] ?? 0;
    return sum;
  }
}
