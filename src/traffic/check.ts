/** What load and save ask of their arguments. */
import { DualPathError } from '../errors/index.js';
import type { KeyChain } from './key-chain.js';

export interface BlockRange {
  readonly chain: KeyChain;
  readonly firstBlock: number;
  readonly blocks: number;
  /** Slot of each of the blocks. */
  readonly blockTable: ArrayLike<number>;
}

const isWhole = (value: number | undefined): value is number =>
  value !== undefined && Number.isSafeInteger(value) && value >= 0;

/** @throws INVALID_ARGUMENT unless all of the blocks have keys and a slot number. */
export function checkRange({ chain, firstBlock, blocks, blockTable }: BlockRange): void {
  const possible =
    isWhole(firstBlock) &&
    isWhole(blocks) &&
    firstBlock + blocks <= chain.blocks &&
    blocks <= blockTable.length;
  if (!possible) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `${blocks} blocks from block ${firstBlock} on, but the chain has keys of ${chain.blocks} full blocks and the ` +
        `block table has ${blockTable.length} entries; move full blocks only and name the slot of each`,
      {
        first_block: String(firstBlock),
        blocks: String(blocks),
        keys: chain.blocks,
        table: blockTable.length,
      },
    );
  }
  for (let i = 0; i < blocks; i++) {
    const slot = blockTable[i];
    if (isWhole(slot) && slot <= 0xffffffff) continue;
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `entry ${i} of the block table is ${slot}; the number of a slot is needed`,
      { entry: i, slot: String(slot) },
    );
  }
}
