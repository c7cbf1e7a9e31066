/**
 * Compute NICs and DRAM. Layerwise transfers keep the pace of the forward that they serve, so a forward asks each of
 * its links for a rate. While a link can carry the sum nobody is slowed; beyond that all its forwards are, by the
 * same factor. Only links that a change touches are looked at again, and only forwards whose factor changed.
 */
export class PacedLinks {
  readonly #capacity: Float64Array;
  readonly #load: Float64Array;
  readonly #byGroup: { links: number[]; rates: number[] }[];
  /** Bytes that were asked for, by link. */
  readonly bytes: Float64Array;

  constructor(capacity: Float64Array, groups: number) {
    this.#capacity = capacity;
    this.#load = new Float64Array(capacity.length);
    this.bytes = new Float64Array(capacity.length);
    this.#byGroup = Array.from({ length: groups }, () => ({ links: [], rates: [] }));
  }

  capacityOf(link: number): number {
    return this.#capacity[link]!;
  }

  /** What `bytes` over `durationS` ask of a link, for the forward that a group is about to start. */
  ask(group: number, link: number, bytes: number, durationS: number): void {
    const rate = bytes / durationS;
    this.bytes[link]! += bytes;
    const { links, rates } = this.#byGroup[group]!;
    links.push(link);
    rates.push(rate);
    this.#load[link]! += rate;
  }

  /** The group's forward is over. True if another group may be faster now. */
  release(group: number): boolean {
    const asked = this.#byGroup[group]!;
    let wasFull = false;
    for (const [place, link] of asked.links.entries()) {
      wasFull ||= this.isFull(link);
      this.#load[link] = Math.max(0, this.#load[link]! - asked.rates[place]!);
    }
    asked.links.length = 0;
    asked.rates.length = 0;
    return wasFull;
  }

  isFull(link: number): boolean {
    return this.#load[link]! > this.#capacity[link]! * (1 + 1e-9);
  }

  /** True if what a group has asked for is more than some link can carry. */
  crowds(group: number): boolean {
    return this.#byGroup[group]!.links.some((link) => this.isFull(link));
  }

  /** How many times longer the group's forward takes than without others: 1 while every link has room. */
  stretch(group: number): number {
    let stretch = 1;
    for (const link of this.#byGroup[group]!.links)
      stretch = Math.max(stretch, this.#load[link]! / this.#capacity[link]!);
    return stretch;
  }
}
