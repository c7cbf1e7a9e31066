/**
 * Runs something once at the end of the turn of the event loop, however often it was asked for; a little later if it
 * has only just run.
 */
export class Turn {
  readonly #run: () => void;
  readonly #leastGapMs: number;
  #pending = false;
  #ranMs = -Infinity;

  /** @param leastGapMs what it gathers costs least when it is run no more often */
  constructor(run: () => void, leastGapMs = 0) {
    this.#run = run;
    this.#leastGapMs = leastGapMs;
  }

  /** True if it was not asked for before. */
  ask(): boolean {
    if (this.#pending) return false;
    this.#pending = true;
    const run = (): void => {
      this.#pending = false;
      this.#ranMs = performance.now();
      this.#run();
    };
    if (performance.now() - this.#ranMs >= this.#leastGapMs) setImmediate(run);
    else setTimeout(run, this.#leastGapMs);
    return true;
  }
}
