/** Under load messages are gathered for so long: each costs more than what is in it. */
const leastGapMs = 1;

/**
 * Runs something once at the end of the turn of the event loop, however often it was asked for; a little later if it
 * has only just run.
 */
export class Turn {
  readonly #run: () => void;
  #pending = false;
  #ranMs = -Infinity;

  constructor(run: () => void) {
    this.#run = run;
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
    if (performance.now() - this.#ranMs >= leastGapMs) setImmediate(run);
    else setTimeout(run, leastGapMs);
    return true;
  }
}
