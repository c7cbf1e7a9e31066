/** Stored blocks into paged memory: storage -> buffer -> the engine's slots, a layer at a time. */
import { DualPathError, isDualPathError } from '../errors/index.js';
import type { BlockList } from '../memory/index.js';
import { ProgramError } from '../transfer/index.js';
import { checkChain, writeBlockTable, type BlockTable } from './block-table.js';
import { Interruption, type CallOptions } from './interruption.js';
import type { KeyChain } from './key-chain.js';
import { LayerProgress } from './layer-progress.js';
import { LoadPlan } from './load-plan.js';
import { settle } from './settle.js';
import type { TrafficManager } from './traffic-manager.js';

export interface LoadOptions extends CallOptions {
  /** From lookup(); must not be released before the load has ended. */
  readonly chain: KeyChain;
  /** First block to load, for an engine that has those before it; default 0. */
  readonly firstBlock?: number;
  /** Blocks to load; default: all from there on that were found. */
  readonly blocks?: number;
  /**
   * Only tokens [tokenBegin, tokenEnd) of the sequence are written, the rest of the blocks they lie in is left
   * alone: they begin in the first block and end in the last. Default: every token of the blocks.
   */
  readonly tokenBegin?: number;
  readonly tokenEnd?: number;
  /** Position of the query that comes next: of windowed layers only what it sees is written. Default 0: everything. */
  readonly windowEnd?: number;
  /** Geometry of the engine's memory (from adopt()), and where the blocks lie there. */
  readonly geometry: number;
  readonly blockTable: BlockTable;
  /**
   * Counter of the engine (engine.takeCounters), at zero: it stands at the number of leading layers that have
   * arrived, so that a device can wait for layer l with no JavaScript in between. A load that fails
   * leaves it where it got to, one of no blocks at zero: a device that waits for more must be stopped. A load of
   * more blocks than the buffer holds comes in parts; it moves only with the last.
   */
  readonly layerCounter?: number;
}

export interface LoadResult {
  readonly blocks: number;
  readonly bytes: number;
}

/**
 * A load that failed: blocks [failedFromBlock, failedToBlock) of the sequence did not arrive, those of the load
 * before them are in the engine's memory. Recompute from failedFromToken on.
 */
export class LoadError extends DualPathError {
  readonly failedFromBlock: number;
  readonly failedToBlock: number;
  readonly failedFromToken: number;
  readonly failedToToken: number;
  /** Of the whole load. */
  readonly blocks: number;

  constructor(cause: DualPathError, failedFromBlock: number, load: LoadRange) {
    const { firstBlock, blocks, tokenBegin, tokenEnd, blockTokens } = load;
    const failedToBlock = firstBlock + blocks;
    const failedFromToken = Math.max(tokenBegin, failedFromBlock * blockTokens);
    super(
      cause.code,
      `${cause.message}; blocks from ${failedFromBlock} on, of ${failedToBlock}, did not arrive: recompute them ` +
        `(tokens ${failedFromToken} to ${tokenEnd})`,
      { ...cause.details, failed_from_block: failedFromBlock, failed_to_block: failedToBlock, blocks },
      { cause },
    );
    this.failedFromBlock = failedFromBlock;
    this.failedToBlock = failedToBlock;
    this.failedFromToken = failedFromToken;
    this.failedToToken = tokenEnd;
    this.blocks = blocks;
  }
}

export interface LoadRange {
  readonly firstBlock: number;
  readonly blocks: number;
  readonly tokenBegin: number;
  readonly tokenEnd: number;
  readonly blockTokens: number;
}

export class LoadOperation {
  /** Ends with the whole load; rejects with LoadError. After it nothing writes the engine's slots. */
  readonly done: Promise<LoadResult>;
  readonly #manager: TrafficManager;
  readonly #options: LoadOptions;
  readonly #range: LoadRange;
  readonly #progress = new LayerProgress();

  constructor(manager: TrafficManager, options: LoadOptions) {
    this.#manager = manager;
    this.#options = options;
    const { chain, firstBlock = 0 } = options;
    const { blockTokens } = manager.layout;
    const { blocks = Math.max(0, chain.hitBlocks - firstBlock) } = options;
    this.#range = {
      firstBlock,
      blocks,
      tokenBegin: options.tokenBegin ?? firstBlock * blockTokens,
      tokenEnd: options.tokenEnd ?? (firstBlock + blocks) * blockTokens,
      blockTokens,
    };
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
    let interruption: Interruption | undefined;
    try {
      interruption = new Interruption(this.#options);
      return await this.#checked(interruption);
    } catch (error) {
      if (!isDualPathError(error) || error instanceof LoadError) throw error;
      throw this.#failed(interruption?.explain(error) ?? error, this.#range.firstBlock);
    } finally {
      interruption?.end();
    }
  }

  #failed(cause: DualPathError, fromBlock: number): LoadError {
    return new LoadError(cause, fromBlock, this.#range);
  }

  async #checked(interruption: Interruption): Promise<LoadResult> {
    const { engine, buffer } = this.#manager;
    const { chain, geometry, blockTable, windowEnd = 0 } = this.#options;
    const { firstBlock, blocks } = this.#range;
    checkChain(engine, chain, firstBlock, blocks);
    if (blocks === 0) return { blocks, bytes: 0 };
    this.#checkTokens();
    interruption.throwIfStopped('the load');
    const shape = this.#manager.tableShape(geometry);
    const target = writeBlockTable(engine, geometry, shape, { ...this.#range, windowEnd }, blockTable);
    try {
      const slots = await buffer.take(Math.min(blocks, buffer.slots), interruption.signal);
      try {
        return await this.#move(interruption, slots, target);
      } finally {
        slots.release();
      }
    } finally {
      engine.slotTable.giveBack(target, blocks * shape.entriesPerBlock);
    }
  }

  #checkTokens(): void {
    const { firstBlock, blocks, tokenBegin, tokenEnd, blockTokens } = this.#range;
    const within = (token: number, from: number, to: number): boolean =>
      Number.isSafeInteger(token) && token >= from && token <= to;
    const end = (firstBlock + blocks) * blockTokens;
    const fine =
      within(tokenBegin, firstBlock * blockTokens, (firstBlock + 1) * blockTokens - 1) &&
      within(tokenEnd, end - blockTokens + 1, end) &&
      tokenBegin < tokenEnd;
    if (fine) return;
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `tokens ${tokenBegin} to ${tokenEnd} of blocks ${firstBlock} to ${firstBlock + blocks}; they must begin in the ` +
        'first of the blocks and end in the last: name the blocks that the tokens lie in',
      { token_begin: String(tokenBegin), token_end: String(tokenEnd) },
    );
  }

  async #move(interruption: Interruption, slots: BlockList, target: number): Promise<LoadResult> {
    const { engine } = this.#manager;
    const { blocks } = this.#range;
    const counters = engine.takeCounters(2);
    const plan = new LoadPlan(this.#manager, this.#options, this.#range, {
      buffer: slots,
      target,
      arrived: counters,
      copied: counters + 1,
    });
    try {
      const program = engine.submit(plan.descriptors(), (step) => this.#progress.stepFinished(step));
      const result = await settle(engine, program, interruption.signal);
      return { blocks, bytes: result.bytesMoved };
    } catch (error) {
      if (!isDualPathError(error)) throw error;
      const arrived = error instanceof ProgramError ? await this.#salvage(error, plan, interruption) : 0;
      throw this.#failed(interruption.explain(error), this.#range.firstBlock + arrived);
    } finally {
      engine.counters.giveBack(counters, 2);
    }
  }

  /**
   * A block could not be read. Those before it were, into the buffer: the engine gets them.
   * @returns how many leading blocks of the load the engine has
   */
  async #salvage(error: ProgramError, plan: LoadPlan, interruption: Interruption): Promise<number> {
    const { engine } = this.#manager;
    const whole = plan.blocksCopied();
    const rest = plan.rest(error);
    if (rest.descriptors.length === 0) return whole;
    try {
      await settle(engine, engine.submit(rest.descriptors), interruption.signal);
      return rest.blocks;
    } catch {
      return whole; // the first error is the one to tell of
    }
  }
}
