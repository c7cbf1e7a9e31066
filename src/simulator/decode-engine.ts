/** A decode engine with continuous batching: every sequence gets a token a step, and a step lasts as its batch says. */
export class DecodeEngine {
  /** Seconds a step lasts with `sequences` of together `tokens`. */
  readonly #stepS: (sequences: number, tokens: number) => number;
  readonly #ends: Float64Array;
  readonly #owners: Int32Array;
  readonly #tokens: Float64Array;
  #size = 0;
  #contextTokens = 0;
  /** Steps made since the start, in fractions. */
  #steps = 0;
  #atS = 0;
  /** Grows with every change, so that an event of before can be told. */
  version = 0;
  /** For means: integrals over time of sequences and of steps while there was any. */
  busyS = 0;
  busySteps = 0;

  constructor(stepS: (sequences: number, tokens: number) => number, capacity = 4096) {
    this.#stepS = stepS;
    this.#ends = new Float64Array(capacity);
    this.#owners = new Int32Array(capacity);
    this.#tokens = new Float64Array(capacity);
  }

  get sequences(): number {
    return this.#size;
  }

  get capacity(): number {
    return this.#ends.length;
  }

  /** A sequence joins that has `steps` to go. */
  join(nowS: number, owner: number, steps: number, contextTokens: number): void {
    this.#advance(nowS);
    let place = this.#size++;
    const end = this.#steps + steps;
    this.#contextTokens += contextTokens;
    while (place > 0) {
      const parent = (place - 1) >> 1;
      if (this.#ends[parent]! <= end) break;
      this.#move(parent, place);
      place = parent;
    }
    this.#put(place, end, owner, contextTokens);
    this.version++;
  }

  /** When the next sequence ends if nothing changes; Infinity if there is none. */
  nextEndS(): number {
    if (this.#size === 0) return Infinity;
    const left = Math.max(0, this.#ends[0]! - this.#steps);
    return this.#atS + left * this.#stepS(this.#size, this.#contextTokens);
  }

  /** Takes the sequence that ends now. */
  leave(nowS: number): number {
    this.#advance(nowS);
    const owner = this.#owners[0]!;
    this.#steps = Math.max(this.#steps, this.#ends[0]!);
    this.#contextTokens -= this.#tokens[0]!;
    const last = --this.#size;
    this.version++;
    if (last === 0) return owner;
    const end = this.#ends[last]!;
    let place = 0;
    for (;;) {
      let child = 2 * place + 1;
      if (child >= last) break;
      if (child + 1 < last && this.#ends[child + 1]! < this.#ends[child]!) child++;
      if (this.#ends[child]! >= end) break;
      this.#move(child, place);
      place = child;
    }
    this.#put(place, end, this.#owners[last]!, this.#tokens[last]!);
    return owner;
  }

  #advance(nowS: number): void {
    if (this.#size > 0) {
      const steps = (nowS - this.#atS) / this.#stepS(this.#size, this.#contextTokens);
      this.#steps += steps;
      this.busyS += (nowS - this.#atS) * this.#size;
      this.busySteps += steps * this.#size;
    }
    this.#atS = nowS;
  }

  #move(from: number, to: number): void {
    this.#put(to, this.#ends[from]!, this.#owners[from]!, this.#tokens[from]!);
  }

  #put(place: number, end: number, owner: number, tokens: number): void {
    this.#ends[place] = end;
    this.#owners[place] = owner;
    this.#tokens[place] = tokens;
  }
}
