/**
 * Decode and persist: the merged prompt KV goes DE buffer -> DE HBM; the prompt's full miss blocks are
 * stored from the buffer; each block that generation fills goes HBM -> buffer -> store at once.
 */
import type { Descriptor } from '../transfer/index.js';

/** 8-9 / 6-7: the merged prompt into DE HBM, once the PE has said that it is complete. */
export function mergedToHbm(options: {
  buffer: number;
  hbm: number;
  bufferSlots: number;
  hbmSlots: number;
  blocks: number;
  firstBlock: number;
  tokenBegin: number;
  tokenEnd: number;
  /** Start of the tail block: what decoding sees of windowed layers, and all of the block to be filled. */
  windowEnd: number;
  layers: number;
  merged: number;
}): Descriptor {
  return {
    op: 'copy',
    from: options.buffer,
    to: options.hbm,
    fromSlots: options.bufferSlots,
    toSlots: options.hbmSlots,
    blocks: options.blocks,
    firstBlock: options.firstBlock,
    tokenBegin: options.tokenBegin,
    tokenEnd: options.tokenEnd,
    layers: options.layers,
    windowEnd: options.windowEnd,
    waits: [{ counter: options.merged, value: 1 }],
  };
}

/** The prompt's new full blocks, out of the buffer. */
export function persistMisses(options: {
  buffer: number;
  slots: number;
  keys: number;
  /** Position in the sequence of the first of them. */
  firstBlock: number;
  blocks: number;
  merged: number;
}): Descriptor {
  return {
    op: 'write',
    geometry: options.buffer,
    slots: options.slots,
    keys: options.keys,
    blocks: options.blocks,
    firstBlock: options.firstBlock,
    waits: [{ counter: options.merged, value: 1 }],
  };
}

/** Blocks filled by generation: HBM -> buffer for every layer, then to the store. */
export function persistGenerated(options: {
  hbm: number;
  buffer: number;
  hbmSlots: number;
  bufferSlots: number;
  keys: number;
  firstBlock: number;
  blocks: number;
  blockTokens: number;
  layers: number;
  gathered: number;
}): Descriptor[] {
  return [
    {
      op: 'copy',
      from: options.hbm,
      to: options.buffer,
      fromSlots: options.hbmSlots,
      toSlots: options.bufferSlots,
      blocks: options.blocks,
      firstBlock: options.firstBlock,
      tokenBegin: options.firstBlock * options.blockTokens,
      tokenEnd: (options.firstBlock + options.blocks) * options.blockTokens,
      layers: options.layers,
      signals: [{ counter: options.gathered, value: 1 }],
    },
    {
      op: 'write',
      geometry: options.buffer,
      slots: options.bufferSlots,
      keys: options.keys,
      blocks: options.blocks,
      firstBlock: options.firstBlock,
      waits: [{ counter: options.gathered, value: options.layers }],
    },
  ];
}
