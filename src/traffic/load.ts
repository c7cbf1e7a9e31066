/** Stored blocks into paged memory: storage -> buffer -> the engine's slots, a layer at a time. */
import { DualPathError, isDualPathError } from '../errors/index.js';
import { readBlocks } from '../flow/index.js';
import type { BlockList } from '../memory/index.js';
import { ProgramError, type Program } from '../transfer/index.js';
import type { KeyChain } from './key-chain.js';
import type { TrafficManager } from './traffic-manager.js';

export interface LoadOptions {
  /** From lookup(); must not be released before the load has ended. */
  readonly chain: KeyChain;
  /** Blocks to load, from block 0; default: all that were found. */
  readonly blocks?: number;
  /** Geometry of the engine's memory (from adopt()), and the slot of each block there. */
  readonly geometry: number;
  readonly blockTable: ArrayLike<number>;
  readonly signal?: AbortSignal;
}

export interface LoadResult {
  readonly blocks: number;
  readonly bytes: number;
}

/** A load that failed says from which block on nothing arrived: recompute from there. */
export class LoadError extends DualPathError {
  readonly failedFromBlock: number;
  readonly blocks: number;

  constructor(cause: DualPathError, failedFromBlock: number, blocks: number) {
    super(
      cause.code,
      `${cause.message}; blocks ${failedFromBlock} to ${blocks - 1} did not arrive: recompute them`,
      { ...cause.details, failed_from_block: failedFromBlock, blocks },
      { cause },
    );
    this.failedFromBlock = failedFromBlock;
    this.blocks = blocks;
  }
}

interface LayerWaiter {
  layers: number;
  resolve(): void;
  reject(error: unknown): void;
}

export class LoadOperation {
  /** Ends with the whole load; rejects with LoadError. After it nothing writes the engine's slots. */
  readonly done: Promise<LoadResult>;
  readonly #waiters: LayerWaiter[] = [];
  #layersReady = 0;

  constructor(manager: TrafficManager, options: LoadOptions) {
    this.done = this.#run(manager, options);
    this.done.then(
      () => this.#advance(Number.POSITIVE_INFINITY),
      (error: unknown) => this.#fail(error),
    );
  }

  /** Resolves when layers 0 to `layer` are in the engine's memory. */
  layer(layer: number): Promise<void> {
    if (this.#layersReady > layer) return Promise.resolve();
    return new Promise((resolve, reject) => {
      this.#waiters.push({ layers: layer + 1, resolve, reject });
    });
  }

  async #run(manager: TrafficManager, options: LoadOptions): Promise<LoadResult> {
    const { chain, signal } = options;
    const { layout, buffer, engine } = manager;
    const blocks = options.blocks ?? chain.hitBlocks;
    if (blocks > chain.blocks || blocks > options.blockTable.length) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `${blocks} blocks to load, ${chain.blocks} have keys and the block table has ${options.blockTable.length}`,
        { blocks, keys: chain.blocks, block_table: options.blockTable.length },
      );
    }
    if (blocks === 0) return { blocks: 0, bytes: 0 };
    const slots: BlockList = await buffer.take(blocks, signal);
    const target = engine.slotTable.take(blocks);
    const arrived = engine.takeCounters(1);
    try {
      engine.setSlots(
        target,
        Array.from({ length: blocks }, (_, i) => options.blockTable[i]!),
      );
      const read = readBlocks({ geometry: buffer.geometry, keys: chain.offset, slots: slots.offset, blocks });
      const program = engine.submit(
        [
          { ...read, signals: [{ counter: arrived, value: 1 }] },
          {
            op: 'copy',
            from: buffer.geometry,
            to: options.geometry,
            fromSlots: slots.offset,
            toSlots: target,
            blocks,
            firstBlock: 0,
            tokenBegin: 0,
            tokenEnd: blocks * layout.blockTokens,
            layers: layout.layers,
            waits: [{ counter: arrived, value: blocks }],
            event: true,
          },
        ],
        () => this.#advance(this.#layersReady + 1),
      );
      const result = await settle(manager, program, signal);
      return { blocks, bytes: result.bytesMoved };
    } catch (error) {
      if (!isDualPathError(error)) throw error;
      const failedFrom = error instanceof ProgramError ? (error.failedBlock ?? 0) : 0;
      throw new LoadError(error, failedFrom, blocks);
    } finally {
      engine.counters.giveBack(arrived, 1);
      engine.slotTable.giveBack(target, blocks);
      slots.release();
    }
  }

  #advance(layers: number): void {
    this.#layersReady = layers;
    for (let i = this.#waiters.length - 1; i >= 0; i--) {
      if (this.#waiters[i]!.layers <= layers) this.#waiters.splice(i, 1)[0]!.resolve();
    }
  }

  #fail(error: unknown): void {
    for (const waiter of this.#waiters.splice(0)) waiter.reject(error);
  }
}

/** Awaits a program; an aborted signal cancels it, and it still ends before this returns. */
export async function settle(
  manager: TrafficManager,
  program: Program,
  signal: AbortSignal | undefined,
): ReturnType<() => Program['done']> {
  const cancel = (): void => manager.engine.cancel(program);
  if (signal?.aborted === true) cancel();
  signal?.addEventListener('abort', cancel, { once: true });
  try {
    return await program.done;
  } finally {
    signal?.removeEventListener('abort', cancel);
  }
}
