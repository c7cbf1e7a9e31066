/** Events by time, and of one time in the order they were added: a binary heap in typed arrays, of a fixed size. */
export class EventHeap {
  readonly #times: Float64Array;
  readonly #orders: Float64Array;
  readonly #values: Uint32Array;
  #size = 0;
  #order = 0;

  constructor(capacity: number) {
    this.#times = new Float64Array(capacity);
    this.#orders = new Float64Array(capacity);
    this.#values = new Uint32Array(capacity);
  }

  get size(): number {
    return this.#size;
  }

  /** Infinity where there is none. */
  get nextTime(): number {
    return this.#size === 0 ? Infinity : this.#times[0]!;
  }

  push(time: number, value: number): void {
    const order = this.#order++;
    let at = this.#size++;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!this.#isAfter(parent, time, order)) break;
      this.#copy(parent, at);
      at = parent;
    }
    this.#times[at] = time;
    this.#orders[at] = order;
    this.#values[at] = value;
  }

  /** Removes the next event and returns its value. */
  pop(): number {
    const value = this.#values[0]!;
    const last = --this.#size;
    const time = this.#times[last]!;
    const order = this.#orders[last]!;
    const moved = this.#values[last]!;
    let at = 0;
    for (let child = 1; child < last; child = 2 * at + 1) {
      if (child + 1 < last && this.#isAfter(child, this.#times[child + 1]!, this.#orders[child + 1]!))
        child++;
      if (this.#isAfter(child, time, order)) break;
      this.#copy(child, at);
      at = child;
    }
    this.#times[at] = time;
    this.#orders[at] = order;
    this.#values[at] = moved;
    return value;
  }

  #isAfter(place: number, time: number, order: number): boolean {
    const its = this.#times[place]!;
    return its > time || (its === time && this.#orders[place]! > order);
  }

  #copy(from: number, to: number): void {
    this.#times[to] = this.#times[from]!;
    this.#orders[to] = this.#orders[from]!;
    this.#values[to] = this.#values[from]!;
  }
}
