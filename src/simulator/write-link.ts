/** A write that has waited this long is not overtaken any more. */
const maxOvertakenS = 2;

interface Write {
  readonly owner: number;
  readonly readyS: number;
  leftBytes: number;
}

/**
 * The write direction of a node's storage link, served as the reactor serves it (native/transfer/blocks.cc): who has least left
 * goes first, so that one request's new block does not wait for another's whole prompt.
 */
export class WriteLink {
  totalBytes = 0;
  readonly #bytesPerS: number;
  readonly #waiting: Write[] = [];
  #current: Write | undefined;
  #atS = 0;

  constructor(bytesPerS: number) {
    this.#bytesPerS = bytesPerS;
  }

  /** @param owner what take() returns when it is written */
  add(nowS: number, owner: number, bytes: number): void {
    this.#advance(nowS);
    this.totalBytes += bytes;
    this.#waiting.push({ owner, readyS: nowS, leftBytes: bytes });
    this.#choose();
  }

  /** When take() is to be called next; Infinity: nothing is to be written. */
  nextS(): number {
    const current = this.#current;
    if (current === undefined) return Infinity;
    let nextS = this.#atS + current.leftBytes / this.#bytesPerS;
    for (const { readyS } of this.#waiting) {
      const patienceS = readyS + maxOvertakenS;
      if (patienceS > this.#atS && patienceS < nextS) nextS = patienceS;
    }
    return nextS;
  }

  /** @returns the owner of the write that ends now, if one does */
  take(nowS: number): number | undefined {
    const current = this.#current;
    if (current === undefined) return undefined;
    // Reckoned as nextS() does, so that its time is the end whatever the rounding.
    const isWritten = nowS >= this.#atS + current.leftBytes / this.#bytesPerS;
    this.#advance(nowS);
    if (isWritten) this.#current = undefined;
    this.#choose();
    return isWritten ? current.owner : undefined;
  }

  #advance(nowS: number): void {
    if (this.#current !== undefined) {
      const written = (nowS - this.#atS) * this.#bytesPerS;
      this.#current.leftBytes = Math.max(0, this.#current.leftBytes - written);
    }
    this.#atS = nowS;
  }

  #choose(): void {
    if (this.#current !== undefined) this.#waiting.push(this.#current);
    let best = 0;
    for (let at = 1; at < this.#waiting.length; at++) {
      if (this.#isBefore(this.#waiting[at]!, this.#waiting[best]!)) best = at;
    }
    this.#current = this.#waiting[best];
    const last = this.#waiting.pop();
    if (best < this.#waiting.length) this.#waiting[best] = last!;
  }

  #isBefore(one: Write, other: Write): boolean {
    const oneWaits = this.#atS - one.readyS >= maxOvertakenS;
    const otherWaits = this.#atS - other.readyS >= maxOvertakenS;
    if (oneWaits !== otherWaits) return oneWaits;
    if (oneWaits) return one.readyS < other.readyS;
    return one.leftBytes < other.leftBytes;
  }
}
