import { requireFinite, requireInteger } from './check.js';
import type { TimeModel } from './time-model.js';

/** alpha in tokens: what a storage link reads in `seconds` (3 in the paper). `AdmissionOptions.alphaS` is the same in seconds. */
export function alphaTokens(readRateBytesPerS: number, bytesPerToken: number, seconds = 3): number {
  requireFinite(
    'readRateBytesPerS',
    readRateBytesPerS,
    'positive',
    "give the rate of the node's storage link",
  );
  requireFinite('bytesPerToken', bytesPerToken, 'positive', 'give the bytes of KV-Cache a token');
  requireFinite('seconds', seconds, 'not negative', 'give 3, as in the paper');
  return Math.floor((readRateBytesPerS * seconds) / bytesPerToken);
}

/** Bounds the search; no engine computes so many tokens in a few seconds. */
const mostTokens = 2 ** 32;

/**
 * beta: the most new tokens that one forward computes within `seconds` (5 in the paper) behind `cachedTokens` of
 * context, by binary search over the time model. Count tok_e alike: computed tokens, so `hitTokenWeight` 0; or
 * multiply by prompt tokens over computed tokens of the workload where hits count, too.
 */
export function betaTokens(model: TimeModel, cachedTokens = 0, seconds = 5): number {
  requireInteger('cachedTokens', cachedTokens, 0, 'give the typical context of a request');
  requireFinite('seconds', seconds, 'not negative', 'give 5, as in the paper');
  const fits = (newTokens: number): boolean => model.predict([{ cachedTokens, newTokens }]).totalS <= seconds;
  let low = 0;
  let high = mostTokens;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (fits(middle)) low = middle;
    else high = middle - 1;
  }
  return low;
}
