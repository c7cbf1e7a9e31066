/**
 * The door from TypeScript: programs in, one record each out. Queueing a program costs the same for 4
 * layers and for 61, for 1 block and for 100,000; between its layers JavaScript is never asked.
 */
import {
  callNative,
  native,
  type EngineStatistics,
  type HashRange,
  type NativeBlockPool,
  type NativeEngine,
  type NativeEngineOptions,
  type NativeGeometry,
  type NativePages,
} from '../binding/index.js';
import { DualPathError } from '../errors/index.js';
import { none, programStatus, recordKind, recordWord, failedCall } from './abi.js';
import { writeDescriptor, type Descriptor } from './descriptor.js';
import { LookUps } from './look-ups.js';
import { openDoor, type DoorAccess } from './door.js';
import { noFailure, programError, type ProgramFailure } from './program-error.js';
import { RangeAllocator } from './range-allocator.js';
import { defaultRuntime, type RecordTaker, type Runtime } from './runtime.js';
import { SharedDoor, type SharedDoorOptions } from './shared-door.js';

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

  readonly #lookUps: LookUps;
  readonly #door: DoorAccess;
  readonly #shared: boolean;
  readonly #pending: (Pending | undefined)[];
  readonly #freePrograms: number[] = [];
  readonly #generation: Uint16Array;
  #submitted = 0;
  #inFlight = 0;
  #closing: Promise<void> | undefined;
  #onIdle: (() => void) | undefined;
  readonly #onClose: (() => void)[] = [];
  readonly #sharedDoors: SharedDoor[] = [];
  readonly #peers: string[] = []; // as errors name them

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
    this.#lookUps = new LookUps(this.name, this.handle);
    this.#door = openDoor(this.handle);
    this.#shared = options.shared === true;
    const { counterEntries, slotEntries, keyEntries } = this.#door.sizes;
    this.counters = new RangeAllocator('counters', counterEntries);
    this.slotTable = new RangeAllocator('entries of the slot table', slotEntries);
    this.keyTable = new RangeAllocator('entries of the key table', keyEntries);
    this.#pending = new Array<Pending | undefined>(maxPrograms).fill(undefined);
    this.#generation = new Uint16Array(maxPrograms);
    for (let slot = maxPrograms - 1; slot >= 0; slot--) this.#freePrograms.push(slot);
    this.runtime.register(this);
    this.takeRecords(); // there are none: the doorbell rings from now on
  }

  /** Descriptors and programs that submit() takes now. */
  get room(): { readonly descriptors: number; readonly programs: number } {
    const { sizes } = this.#door;
    return {
      descriptors: sizes.submissionEntries - ((this.#submitted - this.#door.submissionHead()) >>> 0),
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
    const door = this.#door;
    // May throw; until the tail is published nothing has happened.
    for (let i = 0; i < descriptors.length; i++) {
      const at = door.entryWord(this.#submitted + i);
      writeDescriptor(door.submission, at, descriptors[i]!, id, i === descriptors.length - 1);
    }
    this.#freePrograms.pop();
    this.#generation[slot] = generation;
    pending.id = id;
    this.#pending[slot] = pending;
    this.#inFlight++;
    const first = this.#submitted;
    this.#submitted = (first + descriptors.length) >>> 0;
    door.publish(first, descriptors.length);
    return id;
  }

  #checkRoom(descriptors: number): void {
    if (this.closed) throw this.#closedError();
    if (this.#shared) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `engine '${this.name}' has a shared door: the process on its other side submits; open another engine for ` +
          'the programs of this one',
        { engine: this.name },
      );
    }
    const most = this.#door.sizes.submissionEntries;
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
    if (this.#shared) return; // they are the other process's
    this.#door.awake();
    for (let at = this.#door.nextRecord(); at >= 0; at = this.#door.nextRecord()) this.#takeRecord(at);
    if (this.#inFlight === 0) this.#onIdle?.();
  }

  /** Takes one record off the ring before acting on it: what it calls may come back here. */
  #takeRecord(at: number): void {
    const words = this.#door.records;
    const id = words[at + recordWord.program]!;
    const head = words[at + recordWord.head]!;
    const result: ProgramResult = {
      bytesMoved: this.#number(at + recordWord.bytesMoved),
      submittedUs: this.#number(at + recordWord.submittedNs) / 1000,
      finishedUs: this.#number(at + recordWord.finishedNs) / 1000,
    };
    const failed = words[at + recordWord.status] !== programStatus.ok;
    const failure = failed ? this.#failureAt(at) : undefined;
    this.#door.recordTaken();
    const pending = this.#pending[id & 0xffff];
    if (pending?.id !== id) return;
    if ((head & 0xff) === recordKind.step) {
      callStep(pending, head >>> 16, result.finishedUs);
    } else {
      this.#settle(pending, failure, result);
    }
  }

  #failureAt(at: number): ProgramFailure {
    const words = this.#door.records;
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
    if (failure.call === failedCall.none || descriptor === undefined || !('keys' in descriptor))
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
      const peer = this.#peers[pending.descriptors[failure.descriptor]?.peer ?? none];
      pending.reject(programError(this.name, failure, { path: this.#pathOf(pending, failure), peer }));
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
    const words = this.#door.records;
    return words[word]! + words[word + 1]! * 0x1_0000_0000;
  }

  /** A counter's value now; exact to 2^53. */
  counter(index: number): number {
    return this.#door.counter(index);
  }

  /** How peers name a counter until it is zeroed again: what comes for it after that is dropped, and counted. */
  counterHandle(index: number): number {
    return this.handle.counterHandle(index);
  }

  /** Consecutive counters, at zero. */
  takeCounters(count: number): number {
    const first = this.counters.take(count);
    this.#door.zeroCounters(first, count);
    return first;
  }

  /** Puts slot numbers into the slot table. */
  setSlots(offset: number, slots: ArrayLike<number>): void {
    this.#door.setSlots(offset, slots);
  }

  /** A copy of a range of the slot table, to send to a peer. */
  slots(offset: number, count: number): Uint32Array {
    return this.#door.slots(offset, count);
  }

  /**
   * Keys of full blocks of tokens into the key table, off this thread; resolves to the stored leading blocks. At
   * most 64 are under way, further ones wait.
   * @throws INVALID_ARGUMENT, also when the tokens' ArrayBuffer was transferred meanwhile, CANCELLED by the signal,
   * CAPACITY_EXHAUSTED, CLOSED
   */
  hash(tokens: Uint32Array, range: HashRange, signal?: AbortSignal): Promise<number> {
    if (this.closed) return Promise.reject(this.#closedError());
    return this.#lookUps.run(tokens, range, signal);
  }

  /** Ends what a look-up holds: the first `held` blocks of a chain. Its first `stored` ones were used now. */
  releaseBlocks(keyOffset: number, held: number, stored: number): void {
    callNative(() => this.handle.release(keyOffset, held, stored));
  }

  addGeometry(geometry: NativeGeometry | NativePages): number {
    return callNative(() =>
      'tables' in geometry ? this.handle.addPages(geometry) : this.handle.addGeometry(geometry),
    );
  }

  /** A peer by its name on the transport. @throws PEER_LOST */
  connect(peer: string): number {
    const id = callNative(() => this.handle.connect(peer));
    this.namePeer(id, `'${peer}' on the loopback transport`);
    return id;
  }

  /** How errors name a peer of another transport: its name, transport and device. */
  namePeer(id: number, name: string): void {
    this.#peers[id] = name;
  }

  /**
   * Gives the door to other processes: one that submits this engine's programs, and observers. Only for an engine
   * opened with `shared`, whose programs are that process's alone.
   * @throws INVALID_ARGUMENT for an engine without a shared door or a path in use, STORAGE_IO, CLOSED
   */
  shareDoor(options: SharedDoorOptions): SharedDoor {
    if (this.closed) throw this.#closedError();
    const door = new SharedDoor(this, options);
    this.#sharedDoors.push(door);
    return door;
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
    this.#lookUps.close();
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
    // The other process has its last records before it sees the end.
    for (const door of this.#sharedDoors) door.close();
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
