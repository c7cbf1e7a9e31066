/** A geometry of one engine and who holds which of its slots: a bounded pool, lists at a time. */
import { DualPathError } from '../errors/index.js';
import type { NativeBlockPool, NativeGeometry } from '../binding/index.js';
import type { TransferEngine } from '../transfer/index.js';

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
   * that does, and for memory that a peer writes after the peer's word. Idempotent.
   */
  release(): void {
    this.#space?.giveBack(this);
    this.#space = undefined;
  }
}

interface Waiter {
  count: number;
  resolve(list: BlockList): void;
  reject(error: unknown): void;
}

const maxWaiters = 4096;

export class BlockSpace {
  readonly engine: TransferEngine;
  readonly geometry: number;
  readonly slots: number;
  readonly #pool: NativeBlockPool;
  readonly #waiters: Waiter[] = [];
  #lowest: number;

  constructor(engine: TransferEngine, geometry: NativeGeometry) {
    this.engine = engine;
    this.slots = geometry.slots;
    this.geometry = engine.addGeometry(geometry);
    this.#pool = engine.pool(geometry.slots);
    this.#lowest = geometry.slots;
  }

  get available(): number {
    return this.#pool.available();
  }

  /** Most slots that were ever held at once. */
  get highWater(): number {
    return this.slots - this.#lowest;
  }

  /** The slots now, or undefined when there are too few (or others wait). */
  tryTake(count: number): BlockList | undefined {
    return this.#waiters.length > 0 ? undefined : this.#take(count);
  }

  /**
   * The slots as soon as there are enough, first come first served.
   * @throws REQUEST_TOO_LARGE when there can never be enough, CANCELLED by the signal
   */
  async take(count: number, signal?: AbortSignal): Promise<BlockList> {
    signal?.throwIfAborted();
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
      throw new DualPathError('CAPACITY_EXHAUSTED', `${maxWaiters} requests wait for blocks already`, {
        waiting: this.#waiters.length,
      });
    }
    return await new Promise<BlockList>((resolve, reject) => {
      const waiter: Waiter = { count, resolve, reject };
      const onAbort = (): void => {
        this.#waiters.splice(this.#waiters.indexOf(waiter), 1);
        reject(
          new DualPathError('CANCELLED', 'cancelled while waiting for blocks', {}, { cause: signal?.reason }),
        );
        this.#serve();
      };
      signal?.addEventListener('abort', onAbort, { once: true });
      waiter.resolve = (list) => {
        signal?.removeEventListener('abort', onAbort);
        resolve(list);
      };
      this.#waiters.push(waiter);
    });
  }

  /** For BlockList. */
  giveBack(list: BlockList): void {
    this.#pool.giveBack(list.offset, list.count);
    this.engine.slotTable.giveBack(list.offset, list.count);
    this.#serve();
  }

  #take(count: number): BlockList | undefined {
    if (count > this.#pool.available()) return undefined;
    const offset = this.engine.slotTable.take(count);
    this.#pool.take(offset, count);
    this.#lowest = Math.min(this.#lowest, this.#pool.available());
    return new BlockList(this, offset, count);
  }

  #serve(): void {
    for (let head = this.#waiters[0]; head !== undefined; head = this.#waiters[0]) {
      const list = this.#take(head.count);
      if (list === undefined) return;
      this.#waiters.shift();
      head.resolve(list);
    }
  }
}
