/**
 * The PE read path (paper, Fig. 4 left): storage -> PE buffer in Full Blocks; then for each layer
 * PE buffer -> PE HBM, compute, hit and miss KV PE HBM -> DE buffer.
 */
import type { BlocksDescriptor, LayersDescriptor } from '../transfer/index.js';
import type { BatchCounters } from './batch-counters.js';

/** 1-2: Full Blocks into a buffer, over the node's storage link. The same step on either side. */
export function readBlocks(options: {
  geometry: number;
  keys: number;
  slots: number;
  blocks: number;
}): BlocksDescriptor {
  return { op: 'read', ...options };
}

/** 3-4: the hit blocks that lie in the PE buffer, into the staging of each layer. */
export function bufferToStaging(
  batch: BatchCounters,
  options: {
    buffer: number;
    staging: number;
    bufferSlots: number;
    stagingSlots: number;
    blocks: number;
    blockTokens: number;
    /** First token that this chunk computes: what it cannot see of windowed layers stays behind. */
    computeFrom: number;
  },
): LayersDescriptor {
  return {
    op: 'copy',
    from: options.buffer,
    to: options.staging,
    fromSlots: options.bufferSlots,
    toSlots: options.stagingSlots,
    blocks: options.blocks,
    firstBlock: 0,
    tokenBegin: 0,
    tokenEnd: options.blocks * options.blockTokens,
    layers: batch.layers,
    windowEnd: options.computeFrom,
    waits: [batch.stagingFree()],
    signals: [{ counter: batch.arrive, counterStep: batch.arriveStep, value: 1 }],
  };
}

/** 5-7: tokens of a computed layer, staging -> DE buffer. `sent` counts finished layers of the request. */
export function stagingToDecodeBuffer(
  batch: BatchCounters,
  options: {
    peer: number;
    staging: number;
    decodeBuffer: number;
    stagingSlots: number;
    decodeSlots: number;
    firstBlock: number;
    blocks: number;
    tokenBegin: number;
    tokenEnd: number;
    sent: number;
    /** Windowed layers need only what decoding at this position can see; 0: everything (it will be stored). */
    windowEnd: number;
  },
): LayersDescriptor {
  return {
    op: 'send',
    peer: options.peer,
    from: options.staging,
    to: options.decodeBuffer,
    fromSlots: options.stagingSlots,
    toSlots: options.decodeSlots,
    blocks: options.blocks,
    firstBlock: options.firstBlock,
    tokenBegin: options.tokenBegin,
    tokenEnd: options.tokenEnd,
    layers: batch.layers,
    windowEnd: options.windowEnd,
    waits: [batch.isComputed()],
    signals: [
      { counter: batch.free, counterStep: 1, value: 1 },
      { counter: options.sent, value: 1 },
    ],
  };
}
