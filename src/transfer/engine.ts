/**
 * The door from TypeScript: programs in, one record each out. Queueing a program costs the same for 4
 * layers and for 61, for 1 block and for 100,000; between its layers JavaScript is never asked.
 */
import {
  callNative,
  fromNative,
  native,
  type EngineStatistics,
  type HashRange,
  type NativeBlockPool,
  type NativeEngine,
  type NativeEngineOptions,
  type NativeGeometry,
} from '../binding/index.js';
import { DualPathError } from '../errors/index.js';
import {
  descriptorWords,
  headerWord,
  programStatus,
  recordKind,
  recordWord,
  recordWords,
  ringWord,
  storageCall,
} from './abi.js';
import { writeDescriptor, type Descriptor } from './descriptor.js';
import { noFailure, programError, type ProgramFailure } from './program-error.js';
import { RangeAllocator } from './range-allocator.js';
import { defaultRuntime, type RecordTaker, type Runtime } from './runtime.js';

export interface ProgramResult {
  readonly bytesMoved: number;
  /** CLOCK_MONOTONIC, comparable with process.hrtime and performance.now() of this host. */
  readonly submittedUs: number;
  readonly finishedUs: number;
}

export interface Program {
  readonly id: number;
  /** Rejects with a ProgramError when the program failed, was cancelled or its engine closed. */
  readonly done: Promise<ProgramResult>;
}

export type TransferEngineOptions = Omit<NativeEngineOptions, 'runtime'> & { readonly runtime?: Runtime };

interface Pending {
  id: number;
  readonly descriptors: readonly Descriptor[];
  resolve(result: ProgramResult): void;
  reject(error: DualPathError): void;
  onStep: ((step: number, finishedUs: number) => void) | undefined;
}

export class TransferEngine implements RecordTaker {
  readonly name: string;
  readonly counters: RangeAllocator;
  readonly slotTable: RangeAllocator;
  readonly keyTable: RangeAllocator;
  readonly runtime: Runtime;
  /** For src/memory and src/replay: the native object. */
  readonly handle: NativeEngine;

  readonly #words: Uint32Array;
  readonly #tails: Int32Array;
  readonly #slots: Uint32Array;
  readonly #counters: Uint32Array;
  readonly #submission: { base: number; mask: number; index: number };
  readonly #completion: { base: number; mask: number; index: number };
  readonly #pending: (Pending | undefined)[];
  readonly #freePrograms: number[] = [];
  readonly #generation: Uint16Array;
  #submitted = 0;
  #taken = 0;
  #inFlight = 0;
  #closing: Promise<void> | undefined;
  #onIdle: (() => void) | undefined;
  readonly #onClose: (() => void)[] = [];

  constructor(options: TransferEngineOptions) {
    this.name = options.name;
    this.runtime = options.runtime ?? defaultRuntime();
    const maxPrograms = options.maxPrograms ?? 1024;
    try {
      this.handle = callNative(
        () => new (native().Engine)({ ...options, maxPrograms, runtime: this.runtime.handle }),
      );
    } catch (error) {
      this.runtime.unregister(this); // it may have been made for this engine
      throw error;
    }
    const door = this.handle.door();
    this.#words = new Uint32Array(door);
    this.#tails = new Int32Array(door);
    const header = (word: number): number => this.#words[word]!;
    this.#submission = {
      base: header(headerWord.submissionOffset) / 4,
      mask: header(headerWord.submissionEntries) - 1,
      index: headerWord.submission,
    };
    this.#completion = {
      base: header(headerWord.completionOffset) / 4,
      mask: header(headerWord.completionEntries) - 1,
      index: headerWord.completion,
    };
    this.#slots = new Uint32Array(door, header(headerWord.slotOffset), header(headerWord.slotEntries));
    this.#counters = new Uint32Array(
      door,
      header(headerWord.counterOffset),
      2 * header(headerWord.counterEntries),
    );
    this.counters = new RangeAllocator('counters', header(headerWord.counterEntries));
    this.slotTable = new RangeAllocator('entries of the slot table', header(headerWord.slotEntries));
    this.keyTable = new RangeAllocator('entries of the key table', header(headerWord.keyEntries));
    this.#pending = new Array<Pending | undefined>(maxPrograms).fill(undefined);
    this.#generation = new Uint16Array(maxPrograms);
    for (let slot = maxPrograms - 1; slot >= 0; slot--) this.#freePrograms.push(slot);
    this.runtime.register(this);
    Atomics.store(this.#tails, this.#completion.index + ringWord.sleeping, 1);
  }

  /** Descriptors and programs that submit() takes now. */
  get room(): { readonly descriptors: number; readonly programs: number } {
    const head = Atomics.load(this.#tails, this.#submission.index + ringWord.head);
    return {
      descriptors: this.#submission.mask + 1 - ((this.#submitted - head) >>> 0),
      programs: this.#freePrograms.length,
    };
  }

  /**
   * Queues a program. onStep is called for the steps of descriptors with `event`; what it throws is an uncaught
   * exception, as a listener's of an EventEmitter.
   * @throws INVALID_ARGUMENT when a value of a descriptor does not fit, REQUEST_TOO_LARGE when the ring could
   * never hold so many, CAPACITY_EXHAUSTED when the ring or the program table is full, CLOSED
   */
  submit(descriptors: readonly Descriptor[], onStep?: (step: number, finishedUs: number) => void): Program {
    let settle: Pick<Pending, 'resolve' | 'reject'> | undefined;
    const done = new Promise<ProgramResult>((resolve, reject) => {
      settle = { resolve, reject };
    });
    const id = this.#enqueue(descriptors, { id: 0, descriptors, ...settle!, onStep });
    return { id, done };
  }

  #enqueue(descriptors: readonly Descriptor[], pending: Pending): number {
    this.#checkRoom(descriptors.length);
    const slot = this.#freePrograms.at(-1)!;
    const generation = (this.#generation[slot]! + 1) & 0xffff || 1;
    const id = ((generation << 16) | slot) >>> 0;
    const { base, mask, index } = this.#submission;
    // May throw; until the tail is published nothing has happened.
    for (let i = 0; i < descriptors.length; i++) {
      const at = base + ((this.#submitted + i) & mask) * descriptorWords;
      writeDescriptor(this.#words, at, descriptors[i]!, id, i === descriptors.length - 1);
    }
    this.#freePrograms.pop();
    this.#generation[slot] = generation;
    pending.id = id;
    this.#pending[slot] = pending;
    this.#inFlight++;
    this.#submitted = (this.#submitted + descriptors.length) >>> 0;
    Atomics.store(this.#tails, index + ringWord.tail, this.#submitted | 0);
    if (Atomics.load(this.#tails, index + ringWord.sleeping) !== 0) this.handle.doorbell();
    return id;
  }

  #checkRoom(descriptors: number): void {
    if (this.closed) throw this.#closedError();
    const most = this.#submission.mask + 1;
    if (descriptors === 0 || descriptors > most) {
      throw new DualPathError(
        descriptors === 0 ? 'INVALID_ARGUMENT' : 'REQUEST_TOO_LARGE',
        `engine '${this.name}': a program of ${descriptors} descriptors, 1 to ${most} are possible; ` +
          'open the engine with more submissionEntries or make several programs of it',
        { descriptors, limit_descriptors: most },
      );
    }
    const room = this.room;
    if (descriptors <= room.descriptors && room.programs > 0) return;
    throw new DualPathError(
      'CAPACITY_EXHAUSTED',
      `engine '${this.name}': a program of ${descriptors} descriptors, room for ${room.descriptors} ` +
        `descriptors and ${room.programs} programs; wait for a program to end`,
      { descriptors, room_descriptors: room.descriptors, room_programs: room.programs },
    );
  }

  /** What is not yet under way of the program never happens; its promise rejects with CANCELLED after the rest. */
  cancel(program: Program): void {
    if (this.runtime.closed || this.#pending[program.id & 0xffff]?.id !== program.id) return;
    this.handle.cancel(program.id);
  }

  /** For the runtime: takes what the completion ring holds. */
  takeRecords(): void {
    const { index } = this.#completion;
    do {
      Atomics.store(this.#tails, index + ringWord.sleeping, 0);
      // Read anew each time: what a record calls may come back here.
      while (this.#taken !== Atomics.load(this.#tails, index + ringWord.tail) >>> 0) this.#takeRecord();
      Atomics.store(this.#tails, index + ringWord.sleeping, 1);
    } while (Atomics.load(this.#tails, index + ringWord.tail) >>> 0 !== this.#taken);
    if (this.#inFlight === 0) this.#onIdle?.();
  }

  /** Takes one record off the ring before acting on it: what it calls may come back here. */
  #takeRecord(): void {
    const words = this.#words;
    const at = this.#completion.base + (this.#taken & this.#completion.mask) * recordWords;
    const id = words[at + recordWord.program]!;
    const head = words[at + recordWord.head]!;
    const result: ProgramResult = {
      bytesMoved: this.#number(at + recordWord.bytesMoved),
      submittedUs: this.#number(at + recordWord.submittedNs) / 1000,
      finishedUs: this.#number(at + recordWord.finishedNs) / 1000,
    };
    const failed = words[at + recordWord.status] !== programStatus.ok;
    const failure = failed ? this.#failureAt(at) : undefined;
    this.#taken = (this.#taken + 1) >>> 0;
    Atomics.store(this.#tails, this.#completion.index + ringWord.head, this.#taken | 0);
    const pending = this.#pending[id & 0xffff];
    if (pending?.id !== id) return;
    if ((head & 0xff) === recordKind.step) {
      callStep(pending, head >>> 16, result.finishedUs);
    } else {
      this.#settle(pending, failure, result);
    }
  }

  #failureAt(at: number): ProgramFailure {
    const words = this.#words;
    return {
      status: words[at + recordWord.status]!,
      op: (words[at + recordWord.head]! >>> 8) & 0xff,
      descriptor: words[at + recordWord.errorIndex]!,
      block: words[at + recordWord.errorBlock]!,
      errno: words[at + recordWord.errorErrno]! | 0,
      call: words[at + recordWord.errorCall]!,
      offsetBytes: words[at + recordWord.errorOffset]!,
      bytes: words[at + recordWord.errorBytes]!,
    };
  }

  /** The file of the block that failed; undefined when it was no block of a read or write. */
  #pathOf(pending: Pending, failure: ProgramFailure): string | undefined {
    const descriptor = pending.descriptors[failure.descriptor];
    if (failure.call === storageCall.none || descriptor === undefined || !('keys' in descriptor))
      return undefined;
    return this.handle.blockPath(descriptor.keys + failure.block);
  }

  #settle(pending: Pending, failure?: ProgramFailure, result?: ProgramResult): void {
    const slot = pending.id & 0xffff;
    this.#pending[slot] = undefined;
    this.#freePrograms.push(slot);
    this.#inFlight--;
    if (failure === undefined) {
      pending.resolve(result!);
    } else {
      pending.reject(programError(this.name, failure, this.#pathOf(pending, failure)));
    }
  }

  /** For the runtime. */
  runtimeClosed(): void {
    this.takeRecords();
    const { closed: status } = programStatus;
    for (const pending of this.#pending) {
      if (pending === undefined) continue;
      this.#settle(pending, { ...noFailure, status });
    }
    this.#tellClosed();
    this.#onIdle?.();
  }

  #number(word: number): number {
    return this.#words[word]! + this.#words[word + 1]! * 0x1_0000_0000;
  }

  /** A counter's value now; exact to 2^53. */
  counter(index: number): number {
    return this.#counters[2 * index]! + this.#counters[2 * index + 1]! * 0x1_0000_0000;
  }

  /** Consecutive counters, at zero. */
  takeCounters(count: number): number {
    const first = this.counters.take(count);
    this.#counters.fill(0, 2 * first, 2 * (first + count));
    return first;
  }

  /** Puts slot numbers into the slot table. */
  setSlots(offset: number, slots: ArrayLike<number>): void {
    this.#slots.set(slots, offset);
  }

  /** A copy of a range of the slot table, to send to a peer. */
  slots(offset: number, count: number): Uint32Array {
    return this.#slots.slice(offset, offset + count);
  }

  /** Hashes full blocks of tokens into the key table, off this thread; resolves to the stored leading blocks. */
  async hash(tokens: Uint32Array, range: HashRange): Promise<number> {
    if (this.closed) throw this.#closedError();
    try {
      return await callNative(() => this.handle.hash(tokens, range));
    } catch (cause) {
      throw fromNative(cause);
    }
  }

  /** Ends what a look-up holds: the first `held` blocks of a chain. Its first `stored` ones were used now. */
  releaseBlocks(keyOffset: number, held: number, stored: number): void {
    callNative(() => this.handle.release(keyOffset, held, stored));
  }

  addGeometry(geometry: NativeGeometry): number {
    return callNative(() => this.handle.addGeometry(geometry));
  }

  /** A peer by its name on the transport. @throws PEER_LOST */
  connect(peer: string): number {
    return callNative(() => this.handle.connect(peer));
  }

  pool(slots: number): NativeBlockPool {
    return callNative(() => new (native().BlockPool)({ engine: this.handle, slots }));
  }

  statistics(): EngineStatistics {
    return this.handle.statistics();
  }

  get closed(): boolean {
    return this.#closing !== undefined || this.runtime.closed;
  }

  #closedError(): DualPathError {
    return new DualPathError('CLOSED', `engine '${this.name}' has been closed`);
  }

  /** Calls `listener` once, as soon as the engine begins to close: for whoever has callers waiting. */
  onClose(listener: () => void): void {
    this.#onClose.push(listener);
  }

  #tellClosed(): void {
    for (const listener of this.#onClose.splice(0)) listener();
  }

  /**
   * Peers no longer reach this engine's memory; programs in flight end (result, error or CLOSED) and so do
   * their promises; then the native side lets go. Idempotent.
   */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#tellClosed();
    if (!this.runtime.closed) {
      this.handle.requestClose();
      if (this.#inFlight > 0) {
        await new Promise<void>((resolve) => {
          this.#onIdle = resolve;
        });
      }
      if (!this.runtime.closed) this.handle.detach();
    }
    this.runtime.unregister(this);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/** A step's listener may throw; the records after it must be taken all the same. */
function callStep(pending: Pending, step: number, finishedUs: number): void {
  try {
    pending.onStep?.(step, finishedUs);
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
  }
}
