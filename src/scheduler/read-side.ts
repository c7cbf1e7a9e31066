import type { ReadSide } from './types.js';

/** A node's storage link: what is queued on it, and how fast it goes. */
export interface ReadLink {
  readonly readQueueBlocks: number;
  readonly readRateBytesPerS: number;
}

/** Blocks that each side reads; they add up to the request's hit blocks. */
export interface ReadPlan {
  readonly side: ReadSide;
  readonly prefillReadBlocks: number;
  readonly decodeReadBlocks: number;
}

/** Seconds until a link has read all that is queued and `blocks` more. */
export function readTimeS(link: ReadLink, blocks: number, blockBytes: number): number {
  return ((link.readQueueBlocks + blocks) * blockBytes) / link.readRateBytesPerS;
}

/**
 * How many of `blocks` the prefill side reads so that both sides finish at the same time. With queues q and
 * rates r, x solves (q_p + x) / r_p = (q_d + blocks - x) / r_d, is clamped to [0, prefillLimitBlocks], and is
 * rounded to the neighbour that finishes first, the larger when both do: what the prefill side reads need not
 * cross the compute network to be used.
 *
 * The paper reads a request on one side and leaves splitting it to future work.
 *
 * @param prefillLimitBlocks free PE buffer; the DE buffer always holds the whole prompt, so it sets no limit
 */
export function splitBlocks(
  blocks: number,
  prefill: ReadLink,
  decode: ReadLink,
  prefillLimitBlocks: number,
): number {
  const { readQueueBlocks: prefillQueue, readRateBytesPerS: prefillRate } = prefill;
  const { readQueueBlocks: decodeQueue, readRateBytesPerS: decodeRate } = decode;
  const limit = Math.min(blocks, prefillLimitBlocks);
  const balance =
    ((decodeQueue + blocks) * prefillRate - prefillQueue * decodeRate) / (prefillRate + decodeRate);
  const low = Math.min(Math.max(Math.floor(balance), 0), limit);
  const high = Math.min(Math.max(Math.ceil(balance), 0), limit);
  const finish = (x: number): number =>
    Math.max((prefillQueue + x) / prefillRate, (decodeQueue + blocks - x) / decodeRate);
  return finish(high) <= finish(low) ? high : low;
}

/** The plan in which the prefill side reads the first `prefillReadBlocks` of `blocks`. */
export function planReads(blocks: number, prefillReadBlocks: number): ReadPlan {
  const decodeReadBlocks = blocks - prefillReadBlocks;
  const side = decodeReadBlocks === 0 ? 'prefill' : prefillReadBlocks === 0 ? 'decode' : 'split';
  return { side, prefillReadBlocks, decodeReadBlocks };
}
