/** Work under way whose end somebody will wait for; how it ends is its own business. */
export class Tasks {
  readonly #running = new Set<Promise<void>>();

  add(work: Promise<unknown>): void {
    const over = (): void => void this.#running.delete(task);
    const task = work.then(over, over);
    this.#running.add(task);
  }

  /** Resolves when nothing runs, whatever was added in the meantime included. */
  async settled(): Promise<void> {
    while (this.#running.size > 0) await Promise.all(this.#running);
  }
}
