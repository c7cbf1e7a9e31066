/** Events of a run in virtual time: the earliest first, equals in the order in which they were added. */
export class EventQueue {
  nowS = 0;
  readonly #heap: { readonly atS: number; readonly order: number; readonly run: () => void }[] = [];
  #order = 0;

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

  /** Runs events until none is left or the next is after `endS`. */
  runUntil(endS: number): void {
    for (let next = this.#heap[0]; next && next.atS <= endS; next = this.#heap[0]) {
      this.#removeFirst();
      this.nowS = next.atS;
      next.run();
    }
  }

  #removeFirst(): void {
    const heap = this.#heap;
    const last = heap.pop()!;
    if (heap.length === 0) return;
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
  }
}

function before(a: { atS: number; order: number }, b: { atS: number; order: number }): boolean {
  return a.atS < b.atS || (a.atS === b.atS && a.order < b.order);
}
