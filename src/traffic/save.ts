/** Computed blocks out of paged memory: the engine's slots -> buffer -> store. */
import { persistGenerated } from '../flow/index.js';
import type { BlockList } from '../memory/index.js';
import { checkChain, writeBlockTable, type BlockTable } from './block-table.js';
import { Interruption, type CallOptions } from './interruption.js';
import type { KeyChain } from './key-chain.js';
import { settle } from './settle.js';
import type { TrafficManager } from './traffic-manager.js';

export interface SaveOptions extends CallOptions {
  /** Keys of the sequence; must not be released before the save has ended. */
  readonly chain: KeyChain;
  /** Blocks [firstBlock, firstBlock + blocks) of the sequence: full ones. */
  readonly firstBlock: number;
  readonly blocks: number;
  readonly geometry: number;
  /** Where these blocks lie in the engine's memory; not to be written until the save has ended. */
  readonly blockTable: BlockTable;
}

export interface SaveResult {
  readonly blocks: number;
  /** Moved in all: into the buffer, and to the store as far as blocks were not stored already. */
  readonly bytes: number;
}

export class SaveOperation {
  /** Resolves when the blocks are published: found by every look-up on this host from then on. */
  readonly done: Promise<SaveResult>;

  constructor(manager: TrafficManager, options: SaveOptions) {
    this.done = run(manager, options);
    this.done.catch(() => undefined); // whoever awaits it hears of it
  }
}

async function run(manager: TrafficManager, options: SaveOptions): Promise<SaveResult> {
  const interruption = new Interruption(options);
  try {
    return await checked(manager, options, interruption);
  } catch (error) {
    throw interruption.explain(error);
  } finally {
    interruption.end();
  }
}

async function checked(
  manager: TrafficManager,
  options: SaveOptions,
  interruption: Interruption,
): Promise<SaveResult> {
  const { engine, buffer, layout } = manager;
  const { chain, firstBlock, blocks, geometry, blockTable } = options;
  checkChain(engine, chain, firstBlock, blocks);
  if (blocks === 0) return { blocks, bytes: 0 };
  interruption.throwIfStopped('the save');
  const shape = manager.tableShape(geometry);
  const tokenBegin = firstBlock * layout.blockTokens;
  const tokenEnd = tokenBegin + blocks * layout.blockTokens;
  const span = { firstBlock, blocks, tokenBegin, tokenEnd, windowEnd: 0 };
  const source = writeBlockTable(engine, geometry, shape, span, blockTable);
  try {
    const slots = await buffer.take(Math.min(blocks, buffer.slots), interruption.signal);
    try {
      let bytes = 0;
      // More than the buffer holds at once goes in turns; what a turn has published stays.
      for (let done = 0; done < blocks; done += slots.count) {
        const entry = source + done * shape.entriesPerBlock;
        bytes += await move(manager, options, slots, entry, done, interruption.signal);
      }
      return { blocks, bytes };
    } finally {
      slots.release();
    }
  } finally {
    engine.slotTable.giveBack(source, blocks * shape.entriesPerBlock);
  }
}

async function move(
  manager: TrafficManager,
  options: SaveOptions,
  slots: BlockList,
  source: number,
  done: number,
  signal: AbortSignal | undefined,
): Promise<number> {
  const { engine, buffer, layout } = manager;
  const gathered = engine.takeCounters(1);
  try {
    const program = engine.submit(
      persistGenerated({
        hbm: options.geometry,
        buffer: buffer.geometry,
        hbmSlots: source,
        bufferSlots: slots.offset,
        keys: options.chain.offset + options.firstBlock + done,
        firstBlock: options.firstBlock + done,
        blocks: Math.min(slots.count, options.blocks - done),
        blockTokens: layout.blockTokens,
        layers: layout.layers,
        gathered,
      }),
    );
    return (await settle(engine, program, signal)).bytesMoved;
  } finally {
    engine.counters.giveBack(gathered, 1);
  }
}
