import { fmix32 } from './mix.js';

/** Random numbers of one stream of a seed: counter-based, so that trajectories do not depend on each other. */
export class Draws {
  readonly #key: number;
  #count = 0;

  constructor(seed: number, stream: number, index: number) {
    this.#key = fmix32(fmix32(fmix32(seed) ^ (seed / 2 ** 32)) + fmix32(stream ^ 0x9e3779b9) + fmix32(index));
  }

  /** In (0, 1). */
  uniform(): number {
    const count = this.#count++;
    const value = fmix32(fmix32(count ^ this.#key) + Math.imul(this.#key, 0x85ebca6b));
    return (value + 0.5) / 2 ** 32;
  }

  exponential(): number {
    return -Math.log(this.uniform());
  }

  /** Standard normal, Box and Muller. */
  normal(): number {
    return Math.sqrt(2 * this.exponential()) * Math.cos(2 * Math.PI * this.uniform());
  }

  logNormal(logMean: number, logDeviation: number): number {
    return Math.exp(logMean + logDeviation * this.normal());
  }
}
