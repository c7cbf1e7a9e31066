/** Computed blocks out of paged memory: the engine's slots -> buffer -> store. */
import { DualPathError } from '../errors/index.js';
import { persistGenerated } from '../flow/index.js';
import type { KeyChain } from './key-chain.js';
import { settle } from './load.js';
import type { TrafficManager } from './traffic-manager.js';

export interface SaveOptions {
  /** Keys of the sequence; must not be released before the save has ended. */
  readonly chain: KeyChain;
  /** Blocks [firstBlock, firstBlock + blocks) of the sequence: full ones. */
  readonly firstBlock: number;
  readonly blocks: number;
  readonly geometry: number;
  /** Slot of each of these blocks in the engine's memory; not to be written until the save has ended. */
  readonly blockTable: ArrayLike<number>;
  readonly signal?: AbortSignal;
}

export class SaveOperation {
  /** Resolves when the blocks are published: found by every look-up on this host from then on. */
  readonly done: Promise<{ readonly blocks: number; readonly bytes: number }>;

  constructor(manager: TrafficManager, options: SaveOptions) {
    this.done = run(manager, options);
    this.done.catch(() => undefined); // whoever awaits it hears of it
  }
}

async function run(
  manager: TrafficManager,
  options: SaveOptions,
): Promise<{ blocks: number; bytes: number }> {
  const { chain, firstBlock, blocks, signal } = options;
  const { engine, buffer, layout } = manager;
  if (blocks === 0) return { blocks: 0, bytes: 0 };
  if (firstBlock + blocks > chain.blocks || blocks > options.blockTable.length) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `blocks ${firstBlock} to ${firstBlock + blocks - 1} to save, ${chain.blocks} are full and have keys and the ` +
        `block table has ${options.blockTable.length}`,
      { first_block: firstBlock, blocks, keys: chain.blocks, block_table: options.blockTable.length },
    );
  }
  const slots = await buffer.take(blocks, signal);
  const source = engine.slotTable.take(blocks);
  const gathered = engine.takeCounters(1);
  try {
    engine.setSlots(
      source,
      Array.from({ length: blocks }, (_, i) => options.blockTable[i]!),
    );
    const program = engine.submit(
      persistGenerated({
        hbm: options.geometry,
        buffer: buffer.geometry,
        hbmSlots: source,
        bufferSlots: slots.offset,
        keys: chain.offset + firstBlock,
        firstBlock,
        blocks,
        blockTokens: layout.blockTokens,
        layers: layout.layers,
        gathered,
      }),
    );
    const result = await settle(manager, program, signal);
    return { blocks, bytes: result.bytesMoved };
  } finally {
    engine.counters.giveBack(gathered, 1);
    engine.slotTable.giveBack(source, blocks);
    slots.release();
  }
}
