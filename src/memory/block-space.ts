/** A geometry of one engine and who holds which of its slots: a bounded pool, lists at a time. */
import { DualPathError } from '../errors/index.js';
import { callNative, type NativeBlockPool, type NativeGeometry } from '../binding/index.js';
import type { TransferEngine } from '../transfer/index.js';
import { RunPool, type SlotPool } from './run-pool.js';

/** Slots held by one owner; `offset` is where their numbers stand in the engine's slot table. */
export class BlockList {
  readonly offset: number;
  readonly count: number;
  #space: BlockSpace | undefined;

  constructor(space: BlockSpace, offset: number, count: number) {
    this.#space = space;
    this.offset = offset;
    this.count = count;
  }

  /**
   * Gives the slots back. Only when nothing in flight refers to them: after the records of every program
   * that does, and for memory that a peer writes after the peer's word. Slots that other lists share stay theirs.
   * Idempotent.
   */
  release(): void {
    this.disown()?.giveBack(this);
  }

  isOf(space: BlockSpace): boolean {
    return this.#space === space;
  }

  /** For BlockSpace: the slots are another list's from now on. */
  disown(): BlockSpace | undefined {
    const space = this.#space;
    this.#space = undefined;
    return space;
  }
}

interface Waiter {
  readonly count: number;
  resolve(list: BlockList): void;
  reject(error: unknown): void;
}

const maxWaiters = 4096;

export class BlockSpace {
  readonly engine: TransferEngine;
  readonly geometry: number;
  readonly slots: number;
  readonly #pool: SlotPool;
  readonly #place: NativeGeometry;
  /** Either: slots anywhere, which lists may share, or runs of slots. */
  readonly #shared: NativeBlockPool | undefined;
  readonly #runs: RunPool | undefined;
  readonly #waiters: Waiter[] = [];
  #lowest: number;

  /** @param contiguous the slots of a list follow each other: for engines without page tables (rows()); not shared */
  constructor(engine: TransferEngine, geometry: NativeGeometry, contiguous = false) {
    this.engine = engine;
    this.slots = geometry.slots;
    this.geometry = engine.addGeometry(geometry);
    this.#place = geometry;
    if (contiguous) this.#pool = this.#runs = new RunPool(engine, geometry.slots);
    else this.#pool = this.#shared = engine.pool(geometry.slots);
    this.#lowest = geometry.slots;
    engine.onClose(() => {
      for (const waiter of this.#waiters.splice(0)) waiter.reject(this.#closed());
    });
  }

  /** Slots that one list can have now. */
  get available(): number {
    return this.#pool.available();
  }

  /**
   * The KV of a layer in the slots of a list, in place: [list.count * blockTokens, row bytes], token by token, of a
   * contiguousGeometry. Good while the list is held and, of a window of layers, while the layer is in it.
   * @throws INVALID_ARGUMENT for other spaces and lists, NO_EXTERNAL_BUFFERS (Electron)
   */
  rows(list: BlockList, layer: number): Uint8Array {
    const first = list.isOf(this) ? this.#runs?.first(list.offset) : undefined;
    const at = this.#place.layers[layer];
    if (first === undefined || at === undefined) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `rows of layer ${layer} of a list of ${list.count} blocks at '${this.engine.name}'; a list that is held of a ` +
          `contiguous space has them, of layers 0 to ${this.#place.layers.length - 1}`,
        { layer, layers: this.#place.layers.length, blocks: list.count },
      );
    }
    const buffer = callNative(() => this.#place.arena.buffer());
    if (buffer === undefined) {
      throw new DualPathError(
        'NO_EXTERNAL_BUFFERS',
        'this runtime allows no ArrayBuffer over native memory (Electron with the memory cage of V8); adopt memory of your own',
      );
    }
    const stride = this.#place.slotStrideBytes;
    const offset = this.#place.offsetBytes + at.offsetBytes + first * stride;
    return new Uint8Array(buffer, offset, list.count * stride);
  }

  /** Most slots that were ever held at once. */
  get highWater(): number {
    return this.slots - this.#lowest;
  }

  /** The slots now, or undefined when there are too few (or others wait). @throws INVALID_ARGUMENT, CLOSED */
  tryTake(count: number): BlockList | undefined {
    if (!Number.isSafeInteger(count) || count < 0) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `${count} blocks asked of '${this.engine.name}'; a whole number from 0 to ${this.slots} is needed`,
        { blocks: String(count), limit_blocks: this.slots },
      );
    }
    if (this.engine.closed) throw this.#closed();
    return this.#waiters.length > 0 ? undefined : this.#take(count);
  }

  /**
   * The slots as soon as there are enough, first come first served.
   * @throws REQUEST_TOO_LARGE when there can never be enough, CANCELLED by the signal, CLOSED with the engine,
   * INVALID_ARGUMENT
   */
  async take(count: number, signal?: AbortSignal): Promise<BlockList> {
    if (signal?.aborted === true) throw cancelled(signal);
    if (count > this.slots) {
      throw new DualPathError(
        'REQUEST_TOO_LARGE',
        `${count} blocks needed, '${this.engine.name}' has ${this.slots} in all; give it more memory or shorten the request`,
        { blocks: count, limit_blocks: this.slots },
      );
    }
    const now = this.tryTake(count);
    if (now !== undefined) return now;
    if (this.#waiters.length >= maxWaiters) {
      throw new DualPathError(
        'CAPACITY_EXHAUSTED',
        `${maxWaiters} requests wait for blocks of '${this.engine.name}' already, the most that may; wait for one to ` +
          'end',
        { waiting: this.#waiters.length, limit_waiting: maxWaiters },
      );
    }
    return await this.#wait(count, signal);
  }

  async #wait(count: number, signal: AbortSignal | undefined): Promise<BlockList> {
    let onAbort: (() => void) | undefined;
    try {
      return await new Promise<BlockList>((resolve, reject) => {
        const waiter: Waiter = { count, resolve, reject };
        this.#waiters.push(waiter);
        if (signal === undefined) return;
        onAbort = (): void => {
          const at = this.#waiters.indexOf(waiter);
          if (at < 0) return; // served already
          this.#waiters.splice(at, 1);
          reject(cancelled(signal));
          this.#serve();
        };
        signal.addEventListener('abort', onAbort);
      });
    } finally {
      if (onAbort !== undefined) signal?.removeEventListener('abort', onAbort);
    }
  }

  /**
   * A list of the first `blocks` slots of another, which both hold from now on: they are free when both have been
   * released. @throws INVALID_ARGUMENT when the list is shorter or has been released, CAPACITY_EXHAUSTED
   */
  share(list: BlockList, blocks: number): BlockList {
    if (!list.isOf(this) || !Number.isSafeInteger(blocks) || blocks < 0 || blocks > list.count) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `${blocks} blocks to share of a list of ${list.count}${list.isOf(this) ? '' : ' that is not held here'}; ` +
          'share what is held',
        { blocks: String(blocks), limit_blocks: list.count },
      );
    }
    const pool = this.#sharing();
    const offset = this.engine.slotTable.take(blocks);
    this.engine.setSlots(offset, this.engine.slots(list.offset, blocks));
    callNative(() => pool.share(offset, blocks));
    return new BlockList(this, offset, blocks);
  }

  /**
   * One list of both, which end with it: such as a shared prefix and slots of one's own.
   * @throws INVALID_ARGUMENT when either is not held here, CAPACITY_EXHAUSTED
   */
  join(first: BlockList, second: BlockList): BlockList {
    if (!first.isOf(this) || !second.isOf(this) || first === second) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `lists of ${first.count} and ${second.count} blocks to join, not both held by '${this.engine.name}'`,
        { blocks: first.count, other_blocks: second.count },
      );
    }
    this.#sharing();
    const offset = this.engine.slotTable.take(first.count + second.count);
    let at = offset;
    for (const list of [first, second]) {
      this.engine.setSlots(at, this.engine.slots(list.offset, list.count));
      at += list.count;
      list.disown();
      this.engine.slotTable.giveBack(list.offset, list.count);
    }
    return new BlockList(this, offset, first.count + second.count);
  }

  #sharing(): NativeBlockPool {
    if (this.#shared !== undefined) return this.#shared;
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `blocks of '${this.engine.name}' to share or join are contiguous, each list a run of its own; use paged memory`,
    );
  }

  /** For BlockList. */
  giveBack(list: BlockList): void {
    callNative(() => this.#pool.giveBack(list.offset, list.count));
    this.engine.slotTable.giveBack(list.offset, list.count);
    this.#serve();
  }

  #take(count: number): BlockList | undefined {
    if (count > this.#pool.available()) return undefined;
    const offset = this.engine.slotTable.take(count);
    callNative(() => this.#pool.take(offset, count));
    this.#lowest = Math.min(this.#lowest, this.#runs?.free ?? this.#pool.available());
    return new BlockList(this, offset, count);
  }

  /** Whoever gives slots back must not hear of another's failure: that goes to the one who waits. */
  #serve(): void {
    for (let head = this.#waiters[0]; head !== undefined; head = this.#waiters[0]) {
      try {
        const list = this.#take(head.count);
        if (list === undefined) return;
        head.resolve(list);
      } catch (error) {
        head.reject(error);
      }
      this.#waiters.shift();
    }
  }

  #closed(): DualPathError {
    return new DualPathError('CLOSED', `engine '${this.engine.name}' has been closed`);
  }
}

function cancelled(signal: AbortSignal): DualPathError {
  return new DualPathError(
    'CANCELLED',
    'cancelled by the caller before its blocks were taken',
    {},
    {
      cause: signal.reason,
    },
  );
}
