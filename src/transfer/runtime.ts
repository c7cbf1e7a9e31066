/** The native threads of this JavaScript environment, and how their records wake its event loop. */
import {
  callNative,
  native,
  type Faults,
  type NativeRuntime,
  type RuntimeFacts,
  type StorageIo,
} from '../binding/index.js';
import { DualPathError } from '../errors/index.js';

/** Anything with records to take when the runtime's threads say so. */
export interface RecordTaker {
  takeRecords(): void;
  /** The threads have ended: no record will come any more. */
  runtimeClosed(): void;
}

export interface RuntimeOptions {
  /**
   * Who makes the calls of storage. `auto` (default): io_uring, and where that is refused a pool of threads, with a
   * process warning; `io_uring`: STORAGE_IO rather than the pool.
   */
  readonly storageIo?: 'auto' | StorageIo;
}

/**
 * One progress thread and everything it carries. Engines share the default runtime of their environment
 * unless they are given one.
 */
export class Runtime {
  readonly #takers = new Set<RecordTaker>();
  #native: NativeRuntime | undefined;

  /** @throws STORAGE_IO when io_uring is refused and nothing else is wanted, INVALID_ARGUMENT */
  constructor(options: RuntimeOptions = {}) {
    this.#native = callNative(() => new (native().Runtime)(() => this.#wake(), options));
    const { storageIoRefused } = this.#native.facts();
    if (storageIoRefused !== '') warnOnce(storageIoRefused);
  }

  /** How storage is carried. @throws CLOSED */
  get facts(): RuntimeFacts {
    return this.handle.facts();
  }

  /** For src/transfer: the native object. @throws CLOSED */
  get handle(): NativeRuntime {
    if (this.#native === undefined) throw new DualPathError('CLOSED', 'the runtime has been closed');
    return this.#native;
  }

  get closed(): boolean {
    return this.#native === undefined;
  }

  register(taker: RecordTaker): void {
    this.#takers.add(taker);
  }

  unregister(taker: RecordTaker): void {
    this.#takers.delete(taker);
    // An idle process must be able to exit: the default runtime goes with its last engine.
    if (this.#takers.size === 0 && this === shared) {
      shared = undefined;
      this.close();
    }
  }

  /** Injects faults into every engine of this runtime; for tests. */
  setFaults(faults: Faults): void {
    callNative(() => this.handle.setFaults(faults));
  }

  /**
   * Ends the threads; what its engines have in flight ends with CLOSED. A peer may write into an engine's
   * memory until that engine is closed, so close the engines first. Idempotent.
   */
  close(): void {
    const native = this.#native;
    if (native === undefined) return;
    this.#native = undefined;
    native.close();
    for (const taker of [...this.#takers]) taker.runtimeClosed();
  }

  #wake(): void {
    for (const taker of [...this.#takers]) taker.takeRecords();
  }
}

let warned = false;

function warnOnce(why: string): void {
  if (warned) return;
  warned = true;
  process.emitWarning(`${why}. Blocks are read and written by a pool of threads, which costs more.`, {
    code: 'DUALPATH_STORAGE_IO',
  });
}

let shared: Runtime | undefined;

/** The environment's own runtime, made on first use. */
export function defaultRuntime(): Runtime {
  if (shared === undefined || shared.closed) shared = new Runtime();
  return shared;
}
