import type { EventQueue } from './events.js';

/** A node's storage link: reads first come, first served, at one rate; counts its bytes second by second. */
export class StorageLink {
  readonly #events: EventQueue;
  readonly #bytesPerS: number;
  readonly #bytesBySecond: number[] = [];
  #freeAtS = 0;

  constructor(events: EventQueue, bytesPerS: number) {
    this.#events = events;
    this.#bytesPerS = bytesPerS;
  }

  read(bytes: number, done: () => void): void {
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

  /** Bytes of [fromS, toS), whole seconds. */
  bytes(fromS: number, toS: number): number {
    let sum = 0;
    for (let second = fromS; second < toS; second++) sum += this.#bytesBySecond[second] ?? 0;
    return sum;
  }
}
