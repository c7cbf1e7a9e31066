/** Where a request's blocks lie in the engine's memory: from its page tables to entries of the slot table. */
import { callNative, type NativeBlockSpan, type NativeGeometry, type NativePages } from '../binding/index.js';
import { DualPathError } from '../errors/index.js';
import type { TransferEngine } from '../transfer/index.js';
import type { KeyChain } from './key-chain.js';

type PageNumbers = ArrayLike<number>;

/**
 * Pages of a request, from the page on that holds the first token of the operation's first block; of slots, the
 * slot of each block. One list serves all KV groups, or each has its own by its name. Pages that the operation does
 * not touch are not looked at. An Int32Array or Uint32Array is taken as it is.
 */
export type BlockTable = PageNumbers | Readonly<Record<string, PageNumbers>>;

/** What a geometry asks of block tables. */
export interface TableShape {
  readonly blockTokens: number;
  /** The page tables; one without a name for slots. */
  readonly tables: readonly { readonly name: string; readonly pageTokens: number }[];
  /** Entries of a block in the slot table. */
  readonly entriesPerBlock: number;
}

export function tableShape(geometry: NativeGeometry | NativePages): TableShape {
  const { blockTokens } = geometry;
  if (!('tables' in geometry)) {
    return { blockTokens, tables: [{ name: '', pageTokens: blockTokens }], entriesPerBlock: 1 };
  }
  const { tables } = geometry;
  return {
    blockTokens,
    tables,
    entriesPerBlock: tables.reduce((sum, { pageTokens }) => sum + Math.max(1, blockTokens / pageTokens), 0),
  };
}

const isWhole = (value: number | undefined): value is number =>
  value !== undefined && Number.isSafeInteger(value) && value >= 0;

/** @throws INVALID_ARGUMENT unless the chain is this engine's and has keys of all of the blocks */
export function checkChain(
  engine: TransferEngine,
  chain: KeyChain,
  firstBlock: number,
  blocks: number,
): void {
  if (!chain.isOf(engine)) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `engine '${engine.name}': the keys are of another engine, or have been released; look the tokens up here`,
      { engine: engine.name },
    );
  }
  if (isWhole(firstBlock) && isWhole(blocks) && firstBlock + blocks <= chain.blocks) return;
  throw new DualPathError(
    'INVALID_ARGUMENT',
    `${blocks} blocks from block ${firstBlock} on, but the chain has keys of ${chain.blocks} full blocks; move full ` +
      'blocks only',
    { first_block: String(firstBlock), blocks: String(blocks), keys: chain.blocks },
  );
}

/**
 * Entries of `span`'s blocks in the slot table of the engine, checked: pages in range, none twice.
 * @returns their offset; give `blocks * entriesPerBlock` back
 * @throws INVALID_ARGUMENT naming the entry, CAPACITY_EXHAUSTED
 */
export function writeBlockTable(
  engine: TransferEngine,
  geometry: number,
  shape: TableShape,
  span: NativeBlockSpan,
  table: BlockTable,
): number {
  const tables = shape.tables.map(({ name }) => asWords(pick(shape, table, name), name));
  const count = span.blocks * shape.entriesPerBlock;
  const offset = engine.slotTable.take(count);
  try {
    callNative(() => engine.handle.writePages(geometry, offset, span, tables));
    return offset;
  } catch (error) {
    engine.slotTable.giveBack(offset, count);
    throw error;
  }
}

/** The block table of an operation that begins at a later block. */
export function skipBlocks(shape: TableShape, table: BlockTable, from: number, to: number): BlockTable {
  const rest = (name: string, pageTokens: number): PageNumbers => {
    const page = (block: number): number => Math.floor((block * shape.blockTokens) / pageTokens);
    const list = pick(shape, table, name);
    return Array.prototype.slice.call(list, page(to) - page(from)) as number[];
  };
  return Object.fromEntries(shape.tables.map(({ name, pageTokens }) => [name, rest(name, pageTokens)]));
}

function pick(shape: TableShape, table: BlockTable, name: string): PageNumbers {
  if (isList(table)) {
    if (shape.tables.every(({ pageTokens }) => pageTokens === shape.tables[0]!.pageTokens)) return table;
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `one block table for KV groups with pages of ${shape.tables.map((its) => its.pageTokens).join(', ')} tokens; pass ` +
        `one for each: ${shape.tables.map((its) => its.name).join(', ')}`,
      { tables: shape.tables.length },
    );
  }
  const own = table[name];
  if (own !== undefined) return own;
  throw new DualPathError(
    'INVALID_ARGUMENT',
    `no block table of KV group '${name}', only of ${Object.keys(table).join(', ') || 'none'}; pass one for each group`,
    { group: name },
  );
}

const isList = (table: BlockTable): table is PageNumbers => typeof (table as PageNumbers).length === 'number';

function asWords(list: PageNumbers, name: string): Uint32Array {
  if (list instanceof Uint32Array) return list;
  if (list instanceof Int32Array) return new Uint32Array(list.buffer, list.byteOffset, list.length);
  for (let i = 0; i < list.length; i++) {
    const value = list[i];
    if (isWhole(value) && value <= 0xffffffff) continue;
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `entry ${i} of the block table${name === '' ? '' : ` of '${name}'`} is ${value}; the number of a page is needed`,
      { entry: i, slot: String(value) },
    );
  }
  return Uint32Array.from(list);
}
