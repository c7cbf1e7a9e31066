import { DualPathError } from '../errors/index.js';
import { hash32, hashName } from './hash.js';
import { routerLimits } from './limits.js';

/** What stands on a ring: the name decides where, the weight how often. */
export interface RingMember {
  readonly name: string;
  readonly weight: number;
}

/**
 * Consistent hashing on [0, 2^32): each member stands at `pointsPerWeight` places per unit of weight, and a hash
 * belongs to the first place at or after it, clockwise. Adding or removing a member moves only the arcs of its
 * places. The places of one member depend on its name and the seed alone, so routers with equal members agree.
 */
export class HashRing<M extends RingMember> {
  readonly #seed: number;
  readonly #pointsPerWeight: number;
  /** By slot; a slot that is free again is undefined. */
  readonly #members: (M | undefined)[] = [];
  readonly #slots = new Map<string, number>();
  #positions = new Uint32Array(0);
  /** Slot of the member at each place. */
  #owners = new Uint32Array(0);
  /** First place of every 2^shift of the ring, so that the binary search that follows is over a handful. */
  #buckets = new Uint32Array(0);
  #shift = 31;
  #isIndexed = false;

  /** @param pointsPerWeight at least 1; with fewer than 1,000 the shares of members are uneven (dualmap, ring) */
  constructor(seed: number, pointsPerWeight = 1000) {
    this.#seed = seed >>> 0;
    this.#pointsPerWeight = pointsPerWeight;
  }

  get members(): number {
    return this.#slots.size;
  }

  get points(): number {
    return this.#owners.length;
  }

  /** @throws INVALID_ARGUMENT for a name that is taken or more places than the ring may have */
  add(member: M): void {
    if (this.#slots.has(member.name)) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `${member.name} is on the ring already: give it another name`,
        {
          instance: member.name,
        },
      );
    }
    const count = Math.max(1, Math.round(member.weight * this.#pointsPerWeight));
    if (this.points + count > routerLimits.ringPoints) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `${member.name} would bring the ring to ${this.points + count} places, the limit is ` +
          `${routerLimits.ringPoints}: use smaller weights`,
        { instance: member.name, limit_points: routerLimits.ringPoints },
      );
    }
    const free = this.#members.indexOf(undefined);
    const slot = free < 0 ? this.#members.length : free;
    this.#members[slot] = member;
    this.#slots.set(member.name, slot);
    const own = new Uint32Array(count);
    const id = hashName(member.name, this.#seed);
    for (let i = 0; i < count; i++) own[i] = hash32(i, id, this.#seed ^ 0x5bd1e995);
    this.#merge(own.sort(), slot);
  }

  /** False if there is no such member. */
  remove(name: string): boolean {
    const slot = this.#slots.get(name);
    if (slot === undefined) return false;
    this.#slots.delete(name);
    this.#members[slot] = undefined;
    let kept = 0;
    for (let place = 0; place < this.#owners.length; place++) {
      if (this.#owners[place] === slot) continue;
      this.#positions[kept] = this.#positions[place]!;
      this.#owners[kept++] = this.#owners[place]!;
    }
    this.#positions = this.#positions.slice(0, kept);
    this.#owners = this.#owners.slice(0, kept);
    this.#isIndexed = false;
    return true;
  }

  /** The place that a hash belongs to, for `owner` and `next`; the ring must not be empty. */
  successor(hash: number): number {
    if (!this.#isIndexed) this.#index();
    const bucket = hash >>> this.#shift;
    let low = this.#buckets[bucket]!;
    let high = this.#buckets[bucket + 1]!;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.#positions[middle]! < hash) low = middle + 1;
      else high = middle;
    }
    return low === this.#owners.length ? 0 : low;
  }

  owner(place: number): M {
    return this.#members[this.#owners[place]!]!;
  }

  /** On [0, 2^32), rising with the place. */
  position(place: number): number {
    return this.#positions[place]!;
  }

  next(place: number): number {
    return place + 1 === this.#owners.length ? 0 : place + 1;
  }

  /**
   * The first member clockwise of `hash` that is not `other` and that `usable` takes; undefined where there is none.
   * A member that is left out costs a few steps here and never a change of the ring.
   */
  pick(hash: number, other: M | undefined, usable: (member: M) => boolean): M | undefined {
    if (this.#owners.length === 0) return undefined;
    let place = this.successor(hash);
    for (let steps = 0; steps < this.#owners.length; steps++) {
      const member = this.owner(place);
      if (member !== other && usable(member)) return member;
      place = this.next(place);
    }
    return undefined;
  }

  /** Places at one position are ordered by name, so that the order in which members came does not matter. */
  #merge(own: Uint32Array, slot: number): void {
    const total = this.#owners.length + own.length;
    const positions = new Uint32Array(total);
    const owners = new Uint32Array(total);
    let old = 0;
    for (const [added, position] of own.entries()) {
      const place = this.#placeFor(position, slot);
      positions.set(this.#positions.subarray(old, place), old + added);
      owners.set(this.#owners.subarray(old, place), old + added);
      positions[place + added] = position;
      owners[place + added] = slot;
      old = place;
    }
    positions.set(this.#positions.subarray(old), old + own.length);
    owners.set(this.#owners.subarray(old), old + own.length);
    this.#positions = positions;
    this.#owners = owners;
    this.#isIndexed = false;
  }

  /** How many of the places come before one of that position and member. */
  #placeFor(position: number, slot: number): number {
    const { name } = this.#members[slot]!;
    let [low, high] = [0, this.#owners.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      const there = this.#positions[middle]!;
      const isBefore = there < position || (there === position && this.owner(middle).name < name);
      if (isBefore) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #index(): void {
    const bits = Math.min(24, Math.max(1, Math.ceil(Math.log2(this.points + 1))));
    this.#shift = 32 - bits;
    this.#buckets = new Uint32Array(2 ** bits + 1);
    let place = 0;
    for (let bucket = 0; bucket < 2 ** bits; bucket++) {
      while (place < this.points && this.#positions[place]! >>> this.#shift < bucket) place++;
      this.#buckets[bucket] = place;
    }
    this.#buckets[2 ** bits] = this.points;
    this.#isIndexed = true;
  }
}
