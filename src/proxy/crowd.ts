/** More are never there at once. */
const placesMax = 2 ** 20;

/**
 * Members that come and go by the thousand a second, known by tickets that are never given twice. Not a Map or Set: V8's
 * leaves each table that it has outgrown linked to the next one, so that a table that has been moved to the old space keeps
 * alive, until the next full collection, all members that any later table had.
 */
export class Crowd<T> {
  readonly #members: (T | null)[] = [];
  readonly #tickets: number[] = [];
  readonly #free: number[] = [];
  #given = 0;

  get size(): number {
    return this.#members.length - this.#free.length;
  }

  /** @throws RangeError beyond 2^20 members */
  add(member: T): number {
    const place = this.#free.pop() ?? this.#members.length;
    if (place >= placesMax) throw new RangeError(`a crowd has at most ${placesMax} members`);
    const ticket = this.#given++ * placesMax + place;
    this.#members[place] = member;
    this.#tickets[place] = ticket;
    return ticket;
  }

  /** Undefined: it has left. */
  get(ticket: number): T | undefined {
    const place = ticket % placesMax;
    return this.#tickets[place] === ticket ? (this.#members[place] ?? undefined) : undefined;
  }

  /** False: it has left already. */
  remove(ticket: number): boolean {
    const place = ticket % placesMax;
    if (this.#tickets[place] !== ticket || this.#members[place] === null) return false;
    this.#members[place] = null;
    this.#free.push(place);
    return true;
  }

  /** Who joins or leaves meanwhile may be among them or not. */
  *[Symbol.iterator](): IterableIterator<T> {
    for (let place = 0; place < this.#members.length; place++) {
      const member = this.#members[place];
      if (member !== null && member !== undefined) yield member;
    }
  }
}
