/** Whether the leases of a group still run: from when the scheduler was told that it lives, not from the answer. */
export class Renewals {
  #last = 0;
  /** When each one that has not come back was sent, oldest first. */
  #sent: { readonly number: number; readonly atMs: number }[] = [];
  #renewedMs = performance.now();
  /** Of a lease; Infinity until a scheduler has said it. */
  leaseMs = Infinity;

  next(): number {
    const number = ++this.#last;
    this.#sent.push({ number, atMs: performance.now() });
    return number;
  }

  returned(number: number): void {
    while (this.#sent.length > 0 && this.#sent[0]!.number <= number)
      this.#renewedMs = this.#sent.shift()!.atMs;
  }

  /** A new stream: what was sent on the one before does not come back. */
  reset(): void {
    this.#sent = [];
  }

  get expired(): boolean {
    return performance.now() - this.#renewedMs > this.leaseMs;
  }
}
