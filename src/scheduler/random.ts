/**
 * A seeded source of small random integers for breaking ties: Mulberry32 (Tommy Ettinger, public domain).
 * Ties that always fall on the same engine make it a hot spot; ties that fall by an unseeded source cannot be
 * replayed.
 */
export class SeededRandom {
  #state: number;

  /** @param seed any integer; its low 32 bits count */
  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** An integer in [0, limit), for 1 <= limit <= 2^32. */
  below(limit: number): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let z = this.#state;
    z = Math.imul(z ^ (z >>> 15), z | 1);
    z ^= z + Math.imul(z ^ (z >>> 7), z | 61);
    return Math.floor((((z ^ (z >>> 14)) >>> 0) / 2 ** 32) * limit);
  }
}
