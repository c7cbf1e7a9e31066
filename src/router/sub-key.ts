import { hash32 } from './hash.js';
import type { RoutedRequest } from './request.js';

/**
 * Hash of the prompt's key of `depth` blocks. Where the prefix above its last block is spread over `subKeys` (a power of
 * two, 0: no limit), the last block only says which of them.
 */
export function keyHash(request: RoutedRequest, depth: number, subKeys: number, seed: number): number {
  // A prompt of less than a block has no key; its requests spread by their ids.
  if (depth === 0) return hash32(request.id, 0, seed);
  const { keys } = request;
  const last = 2 * (request.firstBlock + depth - 1);
  if (subKeys === 0 || depth === 1) return hash32(keys[last]!, keys[last + 1]!, seed);
  return subKeyHash(request, depth, hash32(keys[last]!, keys[last + 1]!, 0x165667b1) & (subKeys - 1), seed);
}

/** Of sub-key `index` of the prefix above block `depth`, which is at least the second. */
export function subKeyHash(request: RoutedRequest, depth: number, index: number, seed: number): number {
  const above = 2 * (request.firstBlock + depth - 2);
  return hash32(hash32(request.keys[above]!, request.keys[above + 1]!, seed), index, seed);
}
