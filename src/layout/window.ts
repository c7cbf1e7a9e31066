/** Which cached tokens a sliding window can still see. */
import { integerArgument } from './check.js';
import { modelLimits } from './model.js';

/**
 * First token that a query at position `endToken` sees. A window of w tokens holds the query itself and the w - 1
 * tokens before it; later queries see no further back, so earlier tokens need not be moved.
 * @param windowTokens - window in tokens, 0 for full attention (sees all tokens).
 * @param endToken - 0-based position of the first new token.
 */
export function windowFirstToken(windowTokens: number, endToken: number): number {
  integerArgument('windowTokens', windowTokens, 0, modelLimits.windowTokens);
  integerArgument('endToken', endToken, 0, Number.MAX_SAFE_INTEGER);
  return windowTokens === 0 ? 0 : Math.max(0, endToken - windowTokens + 1);
}

/**
 * Index of the block that holds `windowFirstToken`: blocks before it are out of the window.
 * @param blockTokens - tokens per block.
 */
export function firstVisibleBlock(windowTokens: number, endToken: number, blockTokens: number): number {
  integerArgument('blockTokens', blockTokens, 1, Number.MAX_SAFE_INTEGER);
  const first = windowFirstToken(windowTokens, endToken);
  return (first - (first % blockTokens)) / blockTokens;
}
