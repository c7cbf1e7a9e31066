import type { SeededRandom } from './random.js';

/**
 * A tournament tree over a fixed number of leaves, in typed arrays. Every leaf has a value in each *order* (the
 * least wins) and in each *room* (the most is kept). `least` finds the leaf of a range that is first in one
 * order among those whose values of every order are within a limit and whose rooms suffice.
 *
 * A change costs O(log n). So does a search when the first leaf of a subtree fits whenever any does, which
 * is the rule where loads are balanced; rooms that fit only behind an order's first leaves make it look at
 * more, in the worst case at all.
 *
 * Ties fall to the leaf that changed longest ago, give or take a seeded random number: by chance, and evenly.
 */
export class TournamentTree {
  readonly leaves: number;
  /** Leaves' first position in the arrays: a power of two. Node i has the children 2i and 2i + 1. */
  readonly #base: number;
  readonly #values: readonly Float64Array[];
  readonly #winners: readonly Int32Array[];
  readonly #rooms: readonly Float64Array[];
  readonly #ties: Float64Array;
  readonly #random: SeededRandom;
  #changes = 0;
  /** A value has been set that is not the last. */
  #moved = false;
  readonly #limits: Float64Array;
  readonly #needs: Float64Array;
  #order = 0;
  #from = 0;
  #to = 0;
  #best = -1;

  constructor(leaves: number, orders: number, rooms: number, random: SeededRandom) {
    this.leaves = leaves;
    this.#base = 2 ** Math.ceil(Math.log2(Math.max(leaves, 2)));
    const array = <T>(count: number, make: () => T): T[] => Array.from({ length: count }, make);
    this.#values = array(orders, () => new Float64Array(leaves).fill(Infinity));
    this.#winners = array(orders, () => new Int32Array(2 * this.#base).fill(-1));
    this.#rooms = array(rooms, () => new Float64Array(2 * this.#base).fill(-Infinity));
    this.#ties = new Float64Array(leaves);
    this.#random = random;
    this.#limits = new Float64Array(orders).fill(Infinity);
    this.#needs = new Float64Array(rooms).fill(-Infinity);
  }

  /** A leaf's value; Infinity takes it out of that order. Takes effect with `update`. */
  setValue(leaf: number, order: number, value: number): void {
    const values = this.#values[order]!;
    if (values[leaf] === value) return;
    values[leaf] = value;
    this.#moved = true;
  }

  /** Takes effect with `update`. */
  setRoom(leaf: number, room: number, value: number): void {
    this.#rooms[room]![this.#base + leaf] = value;
  }

  valueOf(leaf: number, order: number): number {
    return this.#values[order]![leaf]!;
  }

  /** Carries a leaf's values to the root. */
  update(leaf: number): void {
    if (this.#moved) this.#draw(leaf);
    for (let order = 0; order < this.#winners.length; order++) {
      const winners = this.#winners[order]!;
      winners[this.#base + leaf] = this.#values[order]![leaf] === Infinity ? -1 : leaf;
      for (let node = (this.#base + leaf) >> 1; node > 0; node >>= 1) {
        const left = winners[2 * node]!;
        const right = winners[2 * node + 1]!;
        winners[node] = right < 0 || (left >= 0 && this.#before(left, right, order)) ? left : right;
      }
    }
    for (const rooms of this.#rooms) {
      for (let node = (this.#base + leaf) >> 1; node > 0; node >>= 1) {
        const left = rooms[2 * node]!;
        const right = rooms[2 * node + 1]!;
        rooms[node] = left > right ? left : right;
      }
    }
  }

  #draw(leaf: number): void {
    this.#moved = false;
    if (this.#ties[leaf]! > 0) this.#changes++; // at first all are equal
    this.#ties[leaf] = this.#changes + this.#random.below(2 ** 32) * (this.leaves / 2 ** 32);
  }

  /** No value of this order over `limit`, in the next `least`. */
  limit(order: number, limit: number): void {
    this.#limits[order] = limit;
  }

  /** At least so much of this room, in the next `least`. */
  need(room: number, need: number): void {
    this.#needs[room] = need;
  }

  /**
   * The first leaf in `order` of the range [from, to) that meets what `limit` and `need` asked for; -1 if none
   * does. Limits and needs are forgotten.
   */
  least(order: number, from = 0, to = this.leaves): number {
    this.#order = order;
    this.#from = from;
    this.#to = to;
    this.#best = -1;
    this.#visit(1, 0, this.#base);
    this.#limits.fill(Infinity);
    this.#needs.fill(-Infinity);
    return this.#best;
  }

  /** The first `count` leaves in `order` of the range [from, to), best first, whatever their rooms. */
  first(order: number, count: number, from = 0, to = this.leaves): number[] {
    const winners = this.#winners[order]!;
    const best: number[] = [];
    // Subtrees whose winner has not come up yet: [node, start, end) each.
    const open: [number, number, number][] = [[1, 0, this.#base]];
    while (open.length > 0 && best.length < count) {
      let place = 0;
      for (let other = 1; other < open.length; other++) {
        if (this.#before(winners[open[other]![0]]!, winners[open[place]![0]]!, order)) place = other;
      }
      const [node, start, end] = open.splice(place, 1)[0]!;
      if (winners[node]! < 0) break;
      if (end - start === 1) {
        best.push(start);
        continue;
      }
      const middle = (start + end) >> 1;
      if (from < middle && winners[2 * node]! >= 0) open.push([2 * node, start, middle]);
      if (to > middle && winners[2 * node + 1]! >= 0) open.push([2 * node + 1, middle, end]);
    }
    return best;
  }

  #before(a: number, b: number, order: number): boolean {
    const values = this.#values[order]!;
    const difference = values[a]! - values[b]!;
    return difference < 0 || (difference === 0 && this.#ties[a]! <= this.#ties[b]!);
  }

  #visit(node: number, start: number, end: number): void {
    if (start >= this.#to || end <= this.#from || !this.#mayFit(node)) return;
    const order = this.#order;
    const winners = this.#winners[order]!;
    const winner = winners[node]!;
    if (this.#best >= 0 && this.#before(this.#best, winner, order)) return;
    // The winner is in the subtree, hence in range if the subtree is; it need not be what has the room.
    if (winner >= this.#from && winner < this.#to && this.#fits(winner)) {
      this.#best = winner;
      return;
    }
    if (end - start === 1) return;
    const middle = (start + end) >> 1;
    const left = winners[2 * node]!;
    const right = winners[2 * node + 1]!;
    if (right < 0 || (left >= 0 && this.#before(left, right, order))) {
      this.#visit(2 * node, start, middle);
      this.#visit(2 * node + 1, middle, end);
    } else {
      this.#visit(2 * node + 1, middle, end);
      this.#visit(2 * node, start, middle);
    }
  }

  /** False only if no leaf below the node can fit. */
  #mayFit(node: number): boolean {
    if (this.#winners[this.#order]![node]! < 0) return false;
    for (let order = 0; order < this.#winners.length; order++) {
      const winner = this.#winners[order]![node]!;
      if (winner >= 0 && this.#values[order]![winner]! > this.#limits[order]!) return false;
      if (winner < 0 && this.#limits[order]! < Infinity) return false;
    }
    for (let room = 0; room < this.#rooms.length; room++) {
      if (this.#rooms[room]![node]! < this.#needs[room]!) return false;
    }
    return true;
  }

  #fits(leaf: number): boolean {
    for (let order = 0; order < this.#values.length; order++) {
      if (this.#values[order]![leaf]! > this.#limits[order]!) return false;
    }
    for (let room = 0; room < this.#rooms.length; room++) {
      if (this.#rooms[room]![this.#base + leaf]! < this.#needs[room]!) return false;
    }
    return true;
  }
}
