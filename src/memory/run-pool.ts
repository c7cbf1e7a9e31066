/** Who holds which slots of a geometry, where the slots of a list must follow each other. */
import { DualPathError } from '../errors/index.js';
import { RangeAllocator, type TransferEngine } from '../transfer/index.js';

/** What a BlockSpace asks: slots go into and come from ranges of the engine's slot table. */
export interface SlotPool {
  /** Slots that one list can have now. */
  available(): number;
  /** @returns whatever: the caller has asked what is available */
  take(offset: number, count: number): unknown;
  giveBack(offset: number, count: number): void;
}

export class RunPool implements SlotPool {
  readonly #engine: TransferEngine;
  readonly #runs: RangeAllocator;
  /** 0, 1, 2, ...: a run is written into the slot table from here. */
  readonly #numbers: Uint32Array;
  /** First slot of the list at an offset of the slot table. */
  readonly #first = new Map<number, number>();

  constructor(engine: TransferEngine, slots: number) {
    this.#engine = engine;
    this.#runs = new RangeAllocator('slots', slots);
    this.#numbers = Uint32Array.from({ length: slots }, (_, slot) => slot);
  }

  available(): number {
    return this.#runs.longest;
  }

  /** Slots that nobody holds. */
  get free(): number {
    return this.#runs.available;
  }

  first(offset: number): number | undefined {
    return this.#first.get(offset);
  }

  take(offset: number, count: number): void {
    if (count === 0) return;
    const first = this.#runs.take(count);
    this.#first.set(offset, first);
    this.#engine.setSlots(offset, this.#numbers.subarray(first, first + count));
  }

  giveBack(offset: number, count: number): void {
    if (count === 0) return;
    const first = this.#first.get(offset);
    if (first === undefined) throw new DualPathError('INTERNAL', `no run of slots is held at ${offset}`);
    this.#first.delete(offset);
    this.#runs.giveBack(first, count);
  }
}
