/**
 * How JavaScript reaches an engine's door: through the mapping itself or, where the runtime keeps native memory
 * out of JavaScript (Electron with V8's sandbox: napi_no_external_buffers_allowed), by copies through native calls.
 */
import type { NativeEngine } from '../binding/index.js';
import { descriptorWords, headerWord, recordWords, ringWord } from './abi.js';

export interface DoorSizes {
  readonly submissionEntries: number;
  readonly completionEntries: number;
  readonly counterEntries: number;
  readonly slotEntries: number;
  readonly keyEntries: number;
}

/** Positions in the rings count up and wrap round at 2^32. */
export interface DoorAccess {
  readonly sizes: DoorSizes;
  /** Descriptors are written here, from word entryWord(position) on. */
  readonly submission: Uint32Array;
  entryWord(position: number): number;
  /** Descriptors that native code has taken. */
  submissionHead(): number;
  /** Gives `count` descriptors from position `first` on to native code, and wakes it if it sleeps. */
  publish(first: number, count: number): void;
  /** Records are read here. */
  readonly records: Uint32Array;
  /** We take records now: nobody needs to ring. */
  awake(): void;
  /** The word at which the next record begins, or -1: there is none and the doorbell will ring. */
  nextRecord(): number;
  /** The record of nextRecord() has been read. */
  recordTaken(): void;
  /** Exact to 2^53. */
  counter(index: number): number;
  zeroCounters(first: number, count: number): void;
  setSlots(offset: number, slots: ArrayLike<number>): void;
  slots(offset: number, count: number): Uint32Array;
}

export function openDoor(handle: NativeEngine): DoorAccess {
  const mapping = handle.door();
  return mapping === undefined ? new CopiedDoor(handle) : new MappedDoor(handle, mapping);
}

interface Ring {
  readonly base: number;
  readonly mask: number;
  readonly index: number;
}

class MappedDoor implements DoorAccess {
  readonly sizes: DoorSizes;
  readonly submission: Uint32Array;
  readonly records: Uint32Array;
  readonly #handle: NativeEngine;
  readonly #tails: Int32Array;
  readonly #slots: Uint32Array;
  readonly #counters: Uint32Array;
  readonly #submissionRing: Ring;
  readonly #completionRing: Ring;
  #taken = 0;

  constructor(handle: NativeEngine, mapping: ArrayBuffer) {
    this.#handle = handle;
    this.sizes = handle.doorLayout();
    this.submission = this.records = new Uint32Array(mapping);
    this.#tails = new Int32Array(mapping);
    const header = (word: number): number => this.records[word]!;
    const { submissionEntries, completionEntries, slotEntries, counterEntries } = this.sizes;
    this.#submissionRing = {
      base: header(headerWord.submissionOffset) / 4,
      mask: submissionEntries - 1,
      index: headerWord.submission,
    };
    this.#completionRing = {
      base: header(headerWord.completionOffset) / 4,
      mask: completionEntries - 1,
      index: headerWord.completion,
    };
    this.#slots = new Uint32Array(mapping, header(headerWord.slotOffset), slotEntries);
    this.#counters = new Uint32Array(mapping, header(headerWord.counterOffset), 2 * counterEntries);
  }

  entryWord(position: number): number {
    const { base, mask } = this.#submissionRing;
    return base + (position & mask) * descriptorWords;
  }

  submissionHead(): number {
    return Atomics.load(this.#tails, this.#submissionRing.index + ringWord.head) >>> 0;
  }

  publish(first: number, count: number): void {
    const { index } = this.#submissionRing;
    Atomics.store(this.#tails, index + ringWord.tail, (first + count) | 0);
    if (Atomics.load(this.#tails, index + ringWord.sleeping) !== 0) this.#handle.doorbell();
  }

  awake(): void {
    Atomics.store(this.#tails, this.#completionRing.index + ringWord.sleeping, 0);
  }

  nextRecord(): number {
    const { base, mask, index } = this.#completionRing;
    if (Atomics.load(this.#tails, index + ringWord.tail) >>> 0 === this.#taken) {
      Atomics.store(this.#tails, index + ringWord.sleeping, 1);
      if (Atomics.load(this.#tails, index + ringWord.tail) >>> 0 === this.#taken) return -1;
      this.awake();
    }
    return base + (this.#taken & mask) * recordWords;
  }

  recordTaken(): void {
    this.#taken = (this.#taken + 1) >>> 0;
    Atomics.store(this.#tails, this.#completionRing.index + ringWord.head, this.#taken | 0);
  }

  counter(index: number): number {
    return this.#counters[2 * index]! + this.#counters[2 * index + 1]! * 0x1_0000_0000;
  }

  zeroCounters(first: number, count: number): void {
    this.#handle.zeroCounters(first, count); // and with them what peers know of them
  }

  setSlots(offset: number, slots: ArrayLike<number>): void {
    this.#slots.set(slots, offset);
  }

  slots(offset: number, count: number): Uint32Array {
    return this.#slots.slice(offset, offset + count);
  }
}

const recordsAtOnce = 256;

class CopiedDoor implements DoorAccess {
  readonly sizes: DoorSizes;
  readonly submission: Uint32Array;
  readonly records = new Uint32Array(recordsAtOnce * recordWords);
  readonly #handle: NativeEngine;
  #next = 0;
  #count = 0;

  constructor(handle: NativeEngine) {
    this.#handle = handle;
    this.sizes = handle.doorLayout();
    this.submission = new Uint32Array(this.sizes.submissionEntries * descriptorWords);
  }

  entryWord(position: number): number {
    return (position & (this.sizes.submissionEntries - 1)) * descriptorWords;
  }

  submissionHead(): number {
    return this.#handle.submissionHead();
  }

  publish(first: number, count: number): void {
    this.#handle.publish(this.submission, first, count);
  }

  awake(): void {
    // takeRecords() says it for us.
  }

  nextRecord(): number {
    if (this.#next === this.#count) {
      this.#next = 0;
      this.#count = this.#handle.takeRecords(this.records);
      if (this.#count === 0) return -1;
    }
    return this.#next * recordWords;
  }

  recordTaken(): void {
    this.#next++;
  }

  counter(index: number): number {
    return this.#handle.counter(index);
  }

  zeroCounters(first: number, count: number): void {
    this.#handle.zeroCounters(first, count);
  }

  setSlots(offset: number, slots: ArrayLike<number>): void {
    this.#handle.writeSlots(offset, Uint32Array.from(slots));
  }

  slots(offset: number, count: number): Uint32Array {
    return this.#handle.readSlots(offset, count);
  }
}
