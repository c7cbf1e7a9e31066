/**
 * Split read: one request's hit blocks from both sides at once (the paper's future work). The first blocks
 * come over the PE node's storage link, the next over the DE node's; a read on one side only is a split
 * with nothing on the other. Each side's part then takes that side's path.
 */
import type { StageSegment } from '../control/index.js';

/** Where the KV before a chunk's first new token lies. */
export interface HitParts {
  /** Blocks [0, prefillBlocks) are in the PE buffer. */
  readonly prefillBlocks: number;
  /** Segments in the DE buffer: its part of the hits, and what earlier chunks computed. */
  readonly decodeSegments: readonly StageSegment[];
}

export function hitParts(options: {
  hitBlocks: number;
  prefillReadBlocks: number;
  /** Tokens whose KV exists: hits and earlier chunks. */
  cachedTokens: number;
  blockTokens: number;
}): HitParts {
  const { hitBlocks, cachedTokens, blockTokens } = options;
  const prefillBlocks = Math.min(options.prefillReadBlocks, hitBlocks);
  const tokenBegin = prefillBlocks * blockTokens;
  if (cachedTokens === tokenBegin) return { prefillBlocks, decodeSegments: [] };
  // The DE's hits and the earlier chunks' tokens lie side by side in the DE buffer.
  const blocks = Math.ceil(cachedTokens / blockTokens) - prefillBlocks;
  return {
    prefillBlocks,
    decodeSegments: [{ firstBlock: prefillBlocks, blocks, tokenBegin, tokenEnd: cachedTokens }],
  };
}
