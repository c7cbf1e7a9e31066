/** Stored blocks into paged memory: storage -> buffer -> the engine's slots, a layer at a time. */
import { DualPathError, isDualPathError } from '../errors/index.js';
import { readBlocks } from '../flow/index.js';
import { ProgramError, type LayersDescriptor } from '../transfer/index.js';
import { checkRange } from './check.js';
import type { KeyChain } from './key-chain.js';
import { LayerProgress } from './layer-progress.js';
import { settle } from './settle.js';
import type { TrafficManager } from './traffic-manager.js';

export interface LoadOptions {
  /** From lookup(); must not be released before the load has ended. */
  readonly chain: KeyChain;
  /** Blocks to load, from block 0; default: all that were found. */
  readonly blocks?: number;
  /** Geometry of the engine's memory (from adopt()), and the slot of each block there. */
  readonly geometry: number;
  readonly blockTable: ArrayLike<number>;
  /**
   * Counter of the engine (engine.takeCounters), at zero: it stands at the number of leading layers that have
   * arrived, so that a device can wait for layer l with no JavaScript in between. A load that fails
   * leaves it where it got to, one of no blocks at zero: a device that waits for more must be stopped.
   */
  readonly layerCounter?: number;
  readonly signal?: AbortSignal;
}

export interface LoadResult {
  readonly blocks: number;
  readonly bytes: number;
}

/** A load that failed. Blocks before `failedFromBlock` are in the engine's memory; recompute from there. */
export class LoadError extends DualPathError {
  readonly failedFromBlock: number;
  readonly blocks: number;

  constructor(cause: DualPathError, failedFromBlock: number, blocks: number) {
    super(
      cause.code,
      `${cause.message}; blocks from ${failedFromBlock} on, of ${blocks}, did not arrive: recompute them`,
      { ...cause.details, failed_from_block: failedFromBlock, blocks },
      { cause },
    );
    this.failedFromBlock = failedFromBlock;
    this.blocks = blocks;
  }
}

/** Where a load's lists stand in the engine's slot table. */
interface Lists {
  readonly buffer: number;
  readonly target: number;
}

export class LoadOperation {
  /** Ends with the whole load; rejects with LoadError. After it nothing writes the engine's slots. */
  readonly done: Promise<LoadResult>;
  readonly #manager: TrafficManager;
  readonly #options: LoadOptions;
  readonly #blocks: number;
  readonly #progress = new LayerProgress();

  constructor(manager: TrafficManager, options: LoadOptions) {
    this.#manager = manager;
    this.#options = options;
    this.#blocks = options.blocks ?? options.chain.hitBlocks;
    this.done = this.#run();
    this.done.then(
      () => this.#progress.complete(),
      (error: unknown) => this.#progress.fail(error),
    );
  }

  /** Resolves when layers 0 to `layer` are in the engine's memory; rejects as `done` does. */
  layer(layer: number): Promise<void> {
    return this.#progress.reached(layer + 1);
  }

  async #run(): Promise<LoadResult> {
    const { chain, blockTable } = this.#options;
    const blocks = this.#blocks;
    try {
      checkRange({ chain, firstBlock: 0, blocks, blockTable });
      return blocks === 0 ? { blocks, bytes: 0 } : await this.#withBuffer();
    } catch (error) {
      if (!isDualPathError(error) || error instanceof LoadError) throw error;
      throw new LoadError(error, 0, blocks);
    }
  }

  async #withBuffer(): Promise<LoadResult> {
    const { engine, buffer } = this.#manager;
    const blocks = this.#blocks;
    const slots = await buffer.take(blocks, this.#options.signal);
    try {
      const target = engine.slotTable.take(blocks);
      try {
        engine.setSlots(
          target,
          Array.from({ length: blocks }, (_, i) => this.#options.blockTable[i]!),
        );
        return await this.#move({ buffer: slots.offset, target });
      } finally {
        engine.slotTable.giveBack(target, blocks);
      }
    } finally {
      slots.release();
    }
  }

  async #move(lists: Lists): Promise<LoadResult> {
    const { engine, buffer } = this.#manager;
    const { chain, layerCounter, signal } = this.#options;
    const blocks = this.#blocks;
    const arrived = engine.takeCounters(1);
    try {
      const read = readBlocks({
        geometry: buffer.geometry,
        keys: chain.offset,
        slots: lists.buffer,
        blocks,
      });
      const program = engine.submit(
        [
          { ...read, signals: [{ counter: arrived, value: 1 }] },
          {
            ...this.#copy(lists, blocks),
            waits: [{ counter: arrived, value: blocks }],
            signals: layerCounter === undefined ? [] : [{ counter: layerCounter, ordered: true, value: 0 }],
            event: true,
          },
        ],
        (step) => this.#progress.stepFinished(step),
      );
      const result = await settle(engine, program, signal);
      return { blocks, bytes: result.bytesMoved };
    } catch (error) {
      const rest = error instanceof ProgramError ? await this.#salvage(error, lists) : 0;
      throw isDualPathError(error) ? new LoadError(error, rest, blocks) : error;
    } finally {
      engine.counters.giveBack(arrived, 1);
    }
  }

  #copy(lists: Lists, blocks: number): LayersDescriptor {
    const { layout, buffer } = this.#manager;
    return {
      op: 'copy',
      from: buffer.geometry,
      to: this.#options.geometry,
      fromSlots: lists.buffer,
      toSlots: lists.target,
      blocks,
      firstBlock: 0,
      tokenBegin: 0,
      tokenEnd: blocks * layout.blockTokens,
      layers: layout.layers,
    };
  }

  /**
   * A block could not be read. Those before it were, into the buffer: the engine gets them.
   * @returns how many it got
   */
  async #salvage(error: ProgramError, lists: Lists): Promise<number> {
    const { engine } = this.#manager;
    const { failedBlock = 0 } = error;
    const ofTheRead = error.details['descriptor'] === 0;
    if (!ofTheRead || failedBlock === 0) return 0;
    try {
      await settle(engine, engine.submit([this.#copy(lists, failedBlock)]), this.#options.signal);
      return failedBlock;
    } catch {
      return 0; // the first error is the one to tell of
    }
  }
}
