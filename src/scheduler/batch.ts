import { DualPathError } from '../errors/index.js';
import { requireFinite, requireInteger } from './check.js';
import type { BatchPart, TimeModel } from './time-model.js';

/** A request that waits for prefill on one engine. */
export interface PrefillWork {
  readonly request: string;
  /** Tokens whose KV is there: hits, and chunks computed before. */
  readonly cachedTokens: number;
  /** Tokens still to compute, at least 1. */
  readonly remainingTokens: number;
}

export interface BatchLimits {
  /** Most seconds of attention in one forward: the compute quota, 0.3 in the paper. */
  readonly quotaS: number;
  /** Staging of one layer, in blocks. */
  readonly maxBatchBlocks: number;
  readonly blockTokens: number;
  /** Most requests of one forward. */
  readonly maxRequests: number;
}

export interface BatchEntry {
  /** Position in the queue; entries are the queue's head, so `index` counts from 0 without gaps. */
  readonly index: number;
  /** Tokens to compute now; fewer than remain for a chunk, which only the last entry can be. */
  readonly newTokens: number;
}

export interface PackedBatch {
  readonly entries: readonly BatchEntry[];
  readonly attentionS: number;
  readonly totalS: number;
}

/**
 * The next forward of a prefill engine (DualPath, intra-engine scheduling): requests are taken in FIFO order
 * while the predicted attention time stays within the compute quota; the first that would not fit is cut to
 * the longest chunk that does, found by binary search, and ends the batch. Chunks end where a block ends, so
 * that every block is persisted by the forward that completes it. The quota evens out attention time over
 * engines that meet in collectives.
 *
 * Layerwise prefill stages a layer's hit and miss KV of the whole batch, so blocks that cover
 * [0, cached + new) of every entry must fit `maxBatchBlocks` too.
 *
 * The head always gets at least to the end of its block, over the quota if need be: nothing livelocks.
 *
 * @throws INVALID_ARGUMENT, and REQUEST_TOO_LARGE if the staging cannot hold the head's context and its next
 * block: it never will, so the caller must fail the request named in the error
 */
export function packBatch(queue: readonly PrefillWork[], model: TimeModel, limits: BatchLimits): PackedBatch {
  checkLimits(limits);
  const { quotaS, maxBatchBlocks, blockTokens, maxRequests } = limits;
  const parts: BatchPart[] = [];
  let freeBlocks = maxBatchBlocks;
  for (const work of queue.slice(0, maxRequests)) {
    checkWork(work);
    const { cachedTokens, remainingTokens } = work;
    const fits = (newTokens: number): boolean =>
      Math.ceil((cachedTokens + newTokens) / blockTokens) <= freeBlocks &&
      model.predict([...parts, { cachedTokens, newTokens }]).attentionS <= quotaS;
    let newTokens = fits(remainingTokens) ? remainingTokens : longestChunk(work, blockTokens, fits);
    if (newTokens === 0 && parts.length === 0) newTokens = leastProgress(work, limits);
    if (newTokens === 0) break;
    parts.push({ cachedTokens, newTokens });
    freeBlocks -= Math.ceil((cachedTokens + newTokens) / blockTokens);
    if (newTokens < remainingTokens) break;
  }
  const entries = parts.map(({ newTokens }, index) => ({ index, newTokens }));
  return { entries, ...model.predict(parts) };
}

/** The longest chunk, short of the whole rest, that ends where a block ends and fits; 0 if none does. */
function longestChunk(
  { cachedTokens, remainingTokens }: PrefillWork,
  blockTokens: number,
  fits: (newTokens: number) => boolean,
): number {
  const firstBlock = Math.floor(cachedTokens / blockTokens);
  const chunk = (endBlock: number): number => endBlock * blockTokens - cachedTokens;
  // Of ends firstBlock (no progress) to the last before the rest's, the fitting ones are a leading range.
  let low = firstBlock;
  let high = Math.ceil((cachedTokens + remainingTokens) / blockTokens) - 1;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (fits(chunk(middle))) low = middle;
    else high = middle - 1;
  }
  return low === firstBlock ? 0 : chunk(low);
}

/** Tokens from the head's position to the end of its block, or all that remain. */
function leastProgress(work: PrefillWork, { blockTokens, maxBatchBlocks }: BatchLimits): number {
  const { request, cachedTokens, remainingTokens } = work;
  const newTokens = Math.min(remainingTokens, blockTokens - (cachedTokens % blockTokens));
  const needBlocks = Math.ceil((cachedTokens + newTokens) / blockTokens);
  if (needBlocks <= maxBatchBlocks) return newTokens;
  throw new DualPathError(
    'REQUEST_TOO_LARGE',
    `request ${request} needs ${needBlocks} blocks of staging for ${cachedTokens} cached and ${newTokens} new ` +
      `tokens, the limit is ${maxBatchBlocks}: raise maxBatchBlocks or shorten the request`,
    { request, need_blocks: needBlocks, limit_blocks: maxBatchBlocks },
  );
}

function checkWork({ request, cachedTokens, remainingTokens }: PrefillWork): void {
  requireInteger(`cachedTokens of request ${request}`, cachedTokens, 0, 'count the tokens whose KV is there');
  requireInteger(`remainingTokens of request ${request}`, remainingTokens, 1, 'take it from the queue');
}

function checkLimits(limits: BatchLimits): void {
  requireFinite('quotaS', limits.quotaS, 'positive', 'give seconds of attention, such as 0.3');
  requireInteger('maxBatchBlocks', limits.maxBatchBlocks, 1, 'give the staging of one layer in blocks');
  requireInteger('blockTokens', limits.blockTokens, 1, 'give the tokens of a block, such as 64');
  requireInteger('maxRequests', limits.maxRequests, 1, 'give the most requests of one forward');
}
