/**
 * A node's storage link: reads first come, first served at one rate, as the reactor serves them, so that their ends are
 * known when they come. Counts its bytes second by second.
 */
export class StorageLink {
  readonly bytesPerS: number;
  #freeAtS = 0;
  #bytes = new Float64Array(1024);
  #totalBytes = 0;
  #reportedBytes = 0;

  constructor(bytesPerS: number) {
    this.bytesPerS = bytesPerS;
  }

  /** @returns when the read is complete */
  read(nowS: number, bytes: number): number {
    const startS = Math.max(nowS, this.#freeAtS);
    const endS = startS + bytes / this.bytesPerS;
    this.#freeAtS = endS;
    this.#totalBytes += bytes;
    for (let second = Math.floor(startS); second < endS; second++) {
      if (second >= this.#bytes.length) this.#grow(second);
      const overlapS = Math.min(endS, second + 1) - Math.max(startS, second);
      this.#bytes[second]! += overlapS * this.bytesPerS;
    }
    return endS;
  }

  /** Of [fromS, toS), whole seconds. */
  bytesBetween(fromS: number, toS: number): number {
    let sum = 0;
    for (let second = fromS; second < Math.min(toS, this.#bytes.length); second++)
      sum += this.#bytes[second]!;
    return sum;
  }

  /** What it has read since the last report, and how long that took: what a node reports of its link. */
  report(nowS: number): { readonly bytes: number; readonly busyS: number } {
    const leftBytes = Math.max(0, this.#freeAtS - nowS) * this.bytesPerS;
    const bytes = Math.max(0, this.#totalBytes - leftBytes - this.#reportedBytes);
    this.#reportedBytes += bytes;
    return { bytes, busyS: bytes / this.bytesPerS };
  }

  get totalBytes(): number {
    return this.#totalBytes;
  }

  #grow(second: number): void {
    const grown = new Float64Array(2 ** Math.ceil(Math.log2(second + 2)));
    grown.set(this.#bytes);
    this.#bytes = grown;
  }
}

/**
 * How much more the busiest link reads than the mean one: the mean over windows, each with the weight of its bytes.
 * Windows in which nothing is read do not count.
 */
export function maxOverMean(
  links: readonly StorageLink[],
  fromS: number,
  toS: number,
  windowS: number,
): number {
  let most = 0;
  let mean = 0;
  for (let start = fromS; start + windowS <= toS; start += windowS) {
    let windowMost = 0;
    for (const link of links) {
      const bytes = link.bytesBetween(start, start + windowS);
      windowMost = Math.max(windowMost, bytes);
      mean += bytes / links.length;
    }
    most += windowMost;
  }
  return mean === 0 ? 1 : most / mean;
}
