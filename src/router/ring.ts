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
  readonly #members = new Map<string, M>();
  #positions = new Uint32Array(0);
  #owners: M[] = [];
  /** First place of every 2^shift of the ring, so that the binary search that follows is over a handful. */
  #buckets = new Uint32Array([0, 0]);
  #shift = 31;

  /** @param pointsPerWeight at least 1; with fewer than 1,000 the shares of members are uneven (dualmap, ring) */
  constructor(seed: number, pointsPerWeight = 1000) {
    this.#seed = seed >>> 0;
    this.#pointsPerWeight = pointsPerWeight;
  }

  get members(): number {
    return this.#members.size;
  }

  get points(): number {
    return this.#owners.length;
  }

  /** @throws INVALID_ARGUMENT for a name that is taken or more places than the ring may have */
  add(member: M): void {
    if (this.#members.has(member.name)) {
      throw new DualPathError('INVALID_ARGUMENT', `${member.name} is on the ring already: give it another name`, {
        instance: member.name,
      });
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
    this.#members.set(member.name, member);
    const own = new Uint32Array(count);
    const id = hashName(member.name, this.#seed);
    for (let i = 0; i < count; i++) own[i] = hash32(i, id, this.#seed ^ 0x5bd1e995);
    this.#merge(own.sort(), member);
  }

  /** False if there is no such member. */
  remove(name: string): boolean {
    if (!this.#members.delete(name)) return false;
    const owners: M[] = [];
    let kept = 0;
    for (const [i, owner] of this.#owners.entries()) {
      if (owner.name === name) continue;
      this.#positions[kept++] = this.#positions[i]!;
      owners.push(owner);
    }
    this.#owners = owners;
    this.#positions = this.#positions.slice(0, kept);
    this.#index();
    return true;
  }

  /** The place that a hash belongs to, for `owner` and `next`; the ring must not be empty. */
  successor(hash: number): number {
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
    return this.#owners[place]!;
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
      const member = this.#owners[place]!;
      if (member !== other && usable(member)) return member;
      place = this.next(place);
    }
    return undefined;
  }

  /** Places at one position are ordered by name, so that the order in which members came does not matter. */
  #merge(own: Uint32Array, member: M): void {
    const total = this.#owners.length + own.length;
    const positions = new Uint32Array(total);
    const owners: M[] = [];
    for (let out = 0, old = 0, added = 0; out < total; out++) {
      const takeOld =
        added === own.length ||
        (old < this.#owners.length && this.#isBefore(old, own[added]!, member.name));
      positions[out] = takeOld ? this.#positions[old]! : own[added]!;
      owners.push(takeOld ? this.#owners[old]! : member);
      if (takeOld) old++;
      else added++;
    }
    this.#positions = positions;
    this.#owners = owners;
    this.#index();
  }

  #isBefore(old: number, position: number, name: string): boolean {
    const there = this.#positions[old]!;
    return there < position || (there === position && this.#owners[old]!.name < name);
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
  }
}
