/** How many leading layers have arrived, and who waits for more. */
interface Waiter {
  readonly layers: number;
  resolve(): void;
  reject(error: unknown): void;
}

export class LayerProgress {
  #layers = 0;
  /** Finished steps beyond the leading ones: steps may end in any order. */
  readonly #ahead = new Set<number>();
  #waiters: Waiter[] = [];
  #failure: { readonly error: unknown } | undefined;

  /** Resolves when `layers` leading layers are there; rejects with what fail() was told. */
  reached(layers: number): Promise<void> {
    const promise = new Promise<void>((resolve, reject) => {
      if (this.#layers >= layers) resolve();
      // The error of the caller's operation, which is one.
      // eslint-disable-next-line @typescript-eslint/prefer-promise-reject-errors
      else if (this.#failure !== undefined) reject(this.#failure.error);
      else this.#waiters.push({ layers, resolve, reject });
    });
    promise.catch(() => undefined); // whoever awaits it hears of it
    return promise;
  }

  stepFinished(step: number): void {
    this.#ahead.add(step);
    let layers = this.#layers;
    while (this.#ahead.delete(layers)) layers++;
    this.#advance(layers);
  }

  complete(): void {
    this.#advance(Number.POSITIVE_INFINITY);
  }

  fail(error: unknown): void {
    this.#failure = { error };
    for (const waiter of this.#waiters.splice(0)) waiter.reject(error);
  }

  #advance(layers: number): void {
    this.#layers = layers;
    for (const waiter of this.#waiters) if (waiter.layers <= layers) waiter.resolve();
    this.#waiters = this.#waiters.filter((waiter) => waiter.layers > layers);
  }
}
