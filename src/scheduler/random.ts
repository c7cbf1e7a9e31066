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

/**
 * The least of the candidates that fit; one of the least by chance when several tie. Undefined when none fits.
 */
export function pickLeast<T extends object>(
  candidates: Iterable<T>,
  fits: (candidate: T) => boolean,
  compare: (a: T, b: T) => number,
  random: SeededRandom,
): T | undefined {
  let best: T | undefined;
  let ties = 0;
  for (const candidate of candidates) {
    if (!fits(candidate)) continue;
    const order = best === undefined ? -1 : compare(candidate, best);
    if (order > 0) continue;
    ties = order < 0 ? 1 : ties + 1;
    // The k-th of the tied replaces the choice with probability 1/k, so all are equally likely.
    if (order < 0 || random.below(ties) === 0) best = candidate;
  }
  return best;
}
