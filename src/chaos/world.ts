import { SeededRandom } from '../scheduler/index.js';

/** Virtual time: what is due happens in order, equals in the order in which they were asked for. */
export class World {
  nowS = 0;
  readonly #random: SeededRandom;
  readonly violations: string[] = [];
  readonly #heap: { readonly atS: number; readonly order: number; readonly run: () => void }[] = [];
  #order = 0;

  constructor(seed: number) {
    this.#random = new SeededRandom(seed);
  }

  /** From 0, below 1. */
  #fraction(): number {
    return this.#random.below(2 ** 32) / 2 ** 32;
  }

  /** From `least` to `most`. */
  between(least: number, most: number): number {
    return least + (most - least) * this.#fraction();
  }

  whole(least: number, most: number): number {
    return Math.floor(this.between(least, most + 1));
  }

  chance(probability: number): boolean {
    return this.#fraction() < probability;
  }

  pick<T>(items: readonly T[]): T | undefined {
    return items[Math.floor(this.#fraction() * items.length)];
  }

  violate(what: string): void {
    if (this.violations.length < 16) this.violations.push(`at ${this.nowS.toFixed(4)} s: ${what}`);
  }

  after(delayS: number, run: () => void): void {
    const heap = this.#heap;
    const event = { atS: this.nowS + delayS, order: this.#order++, run };
    let place = heap.length;
    heap.push(event);
    while (place > 0) {
      const parent = (place - 1) >> 1;
      if (!before(event, heap[parent]!)) break;
      heap[place] = heap[parent]!;
      place = parent;
    }
    heap[place] = event;
  }

  runUntil(endS: number, stop: () => boolean): void {
    while (this.#heap.length > 0 && this.#heap[0]!.atS <= endS && !stop()) {
      const event = this.#take();
      this.nowS = event.atS;
      event.run();
    }
  }

  #take(): { readonly atS: number; readonly order: number; readonly run: () => void } {
    const heap = this.#heap;
    const top = heap[0]!;
    const last = heap.pop()!;
    if (heap.length === 0) return top;
    let place = 0;
    for (;;) {
      let child = 2 * place + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && before(heap[child + 1]!, heap[child]!)) child++;
      if (!before(heap[child]!, last)) break;
      heap[place] = heap[child]!;
      place = child;
    }
    heap[place] = last;
    return top;
  }
}

function before(
  a: { readonly atS: number; readonly order: number },
  b: { readonly atS: number; readonly order: number },
): boolean {
  return a.atS < b.atS || (a.atS === b.atS && a.order < b.order);
}
