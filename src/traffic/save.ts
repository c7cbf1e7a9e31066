/** Computed blocks out of paged memory: the engine's slots -> buffer -> store. */
import { persistGenerated } from '../flow/index.js';
import type { BlockList } from '../memory/index.js';
import { checkRange } from './check.js';
import type { KeyChain } from './key-chain.js';
import { settle } from './settle.js';
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
  const { blocks } = options;
  checkRange(options);
  if (blocks === 0) return { blocks, bytes: 0 };
  const { engine, buffer } = manager;
  const slots = await buffer.take(blocks, options.signal);
  try {
    const source = engine.slotTable.take(blocks);
    try {
      engine.setSlots(
        source,
        Array.from({ length: blocks }, (_, i) => options.blockTable[i]!),
      );
      return { blocks, bytes: await move(manager, options, slots, source) };
    } finally {
      engine.slotTable.giveBack(source, blocks);
    }
  } finally {
    slots.release();
  }
}

async function move(
  manager: TrafficManager,
  options: SaveOptions,
  slots: BlockList,
  source: number,
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
        keys: options.chain.offset + options.firstBlock,
        firstBlock: options.firstBlock,
        blocks: options.blocks,
        blockTokens: layout.blockTokens,
        layers: layout.layers,
        gathered,
      }),
    );
    return (await settle(engine, program, options.signal)).bytesMoved;
  } finally {
    engine.counters.giveBack(gathered, 1);
  }
}
