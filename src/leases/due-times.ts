/** Things by the time when they are due, in slots of a fixed width: adding, removing and taking cost O(1). */
export class DueTimes<T> {
  readonly #widthS: number;
  readonly #slots = new Map<number, Set<T>>();
  #next = 0;

  constructor(widthS: number) {
    this.#widthS = widthS;
  }

  add(dueS: number, item: T): void {
    if (dueS === Infinity) return;
    const slot = Math.max(this.#next, this.#slotOf(dueS));
    const items = this.#slots.get(slot);
    if (items) items.add(item);
    else this.#slots.set(slot, new Set([item]));
  }

  /** Needs the time that it was added with. */
  remove(dueS: number, item: T): void {
    const slot = this.#slotOf(dueS);
    const items = this.#slots.get(slot);
    items?.delete(item);
    if (items?.size === 0) this.#slots.delete(slot);
  }

  /** What has become due. */
  take(nowS: number): T[] {
    const due: T[] = [];
    const last = Math.floor(nowS / this.#widthS);
    for (; this.#next <= last; this.#next++) {
      const items = this.#slots.get(this.#next);
      if (!items) continue;
      this.#slots.delete(this.#next);
      due.push(...items);
    }
    return due;
  }

  #slotOf(dueS: number): number {
    return Math.ceil(dueS / this.#widthS);
  }
}
