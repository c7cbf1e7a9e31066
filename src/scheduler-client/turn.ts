/** Runs something once at the end of the turn of the event loop, however often it was asked for. */
export class Turn {
  readonly #run: () => void;
  #pending = false;

  constructor(run: () => void) {
    this.#run = run;
  }

  ask(): void {
    if (this.#pending) return;
    this.#pending = true;
    setImmediate(() => {
      this.#pending = false;
      this.#run();
    });
  }
}
