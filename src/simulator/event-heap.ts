/** An event of a simulation, told by a number for what happens and one for what it happens to. */
export interface SimulationEvent {
  readonly timeS: number;
  readonly kind: number;
  readonly index: number;
}

/** Beyond this the simulation has a fault: no cluster has as many things under way. */
const maxEvents = 1 << 26;

/**
 * Events in virtual time, the earliest first, equals in the order in which they were added: a 4-ary heap on typed
 * arrays, so that an event costs no object and a comparison no pointer.
 */
export class EventHeap implements SimulationEvent {
  /** Of the event that `take` took last. */
  timeS = 0;
  kind = 0;
  index = 0;
  #size = 0;
  #order = 0;
  #times: Float64Array;
  #orders: Float64Array;
  #kinds: Int32Array;
  #indices: Int32Array;

  constructor(capacity = 1024) {
    this.#times = new Float64Array(capacity);
    this.#orders = new Float64Array(capacity);
    this.#kinds = new Int32Array(capacity);
    this.#indices = new Int32Array(capacity);
  }

  get size(): number {
    return this.#size;
  }

  /** Events added so far. */
  get added(): number {
    return this.#order;
  }

  add(timeS: number, kind: number, index: number): void {
    if (this.#size === this.#times.length) this.#grow();
    const times = this.#times;
    let place = this.#size++;
    // The newest of equals is the last, so that comparing times alone is enough on the way up.
    while (place > 0) {
      const parent = (place - 1) >> 2;
      if (times[parent]! <= timeS) break;
      this.#move(parent, place);
      place = parent;
    }
    this.#put(place, timeS, this.#order++, kind, index);
  }

  /** Takes the earliest event into `timeS`, `kind` and `index`; false when there is none. */
  take(): boolean {
    if (this.#size === 0) return false;
    this.timeS = this.#times[0]!;
    this.kind = this.#kinds[0]!;
    this.index = this.#indices[0]!;
    const last = --this.#size;
    if (last > 0) this.#sink(last);
    return true;
  }

  /** Puts the entry at `last` where it belongs from the top on. */
  #sink(last: number): void {
    const times = this.#times;
    const orders = this.#orders;
    const timeS = times[last]!;
    const order = orders[last]!;
    let place = 0;
    for (;;) {
      const first = 4 * place + 1;
      if (first >= last) break;
      let least = first;
      let leastS = times[first]!;
      const end = Math.min(first + 4, last);
      for (let child = first + 1; child < end; child++) {
        const childS = times[child]!;
        if (childS < leastS || (childS === leastS && orders[child]! < orders[least]!)) {
          least = child;
          leastS = childS;
        }
      }
      if (leastS > timeS || (leastS === timeS && orders[least]! > order)) break;
      this.#move(least, place);
      place = least;
    }
    this.#put(place, timeS, order, this.#kinds[last]!, this.#indices[last]!);
  }

  #move(from: number, to: number): void {
    this.#times[to] = this.#times[from]!;
    this.#orders[to] = this.#orders[from]!;
    this.#kinds[to] = this.#kinds[from]!;
    this.#indices[to] = this.#indices[from]!;
  }

  #put(place: number, timeS: number, order: number, kind: number, index: number): void {
    this.#times[place] = timeS;
    this.#orders[place] = order;
    this.#kinds[place] = kind;
    this.#indices[place] = index;
  }

  #grow(): void {
    const capacity = 2 * this.#times.length;
    if (capacity > maxEvents) throw new RangeError(`more than ${maxEvents} events are pending`);
    const grown = <T extends Float64Array | Int32Array>(to: T, from: T): T => {
      to.set(from);
      return to;
    };
    this.#times = grown(new Float64Array(capacity), this.#times);
    this.#orders = grown(new Float64Array(capacity), this.#orders);
    this.#kinds = grown(new Int32Array(capacity), this.#kinds);
    this.#indices = grown(new Int32Array(capacity), this.#indices);
  }
}
