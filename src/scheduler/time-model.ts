import { requireFinite, requireInteger } from './check.js';

/** One request's part of a forward batch. */
export interface BatchPart {
  /** Tokens whose KV is there before the forward. */
  readonly cachedTokens: number;
  /** Tokens that the forward computes. */
  readonly newTokens: number;
}

/** Predicted time of one forward over all layers, in seconds. */
export interface BatchTime {
  /** In attention, the part that differs between engines and that the compute quota bounds. */
  readonly attentionS: number;
  /** In all. */
  readonly totalS: number;
}

/**
 * Predicts how long a forward takes. `packBatch` relies on `attentionS` not shrinking when a part grows or is
 * added. The paper fits time to profiled FLOPs.
 */
export interface TimeModel {
  predict(batch: readonly BatchPart[]): BatchTime;
}

/** Seconds, over all layers of the model; each finite and not negative. */
export interface LinearTimeCoefficients {
  /** Once a forward, however small: launches, weights, collectives. */
  readonly baseS: number;
  /** Per new token outside attention: projections, MLP or experts. */
  readonly perNewTokenS: number;
  /**
   * Per new token inside attention whatever its context: sparse attention over a fixed top-k. 0 for dense
   * attention.
   */
  readonly perAttentionTokenS: number;
  /** Per pair of a new token and a token it looks at: dense attention, or the indexer of a sparse one. */
  readonly perAttentionPairS: number;
}

/**
 * Pairs of query and key that causal attention computes for `newTokens` after `cachedTokens`: new token i of n
 * sees the cached ones, those before it and itself, so n * (cached + (n + 1) / 2) in all.
 */
export function attentionPairs({ cachedTokens, newTokens }: BatchPart): number {
  return newTokens * (cachedTokens + (newTokens + 1) / 2);
}

/** A time model linear in new tokens and attention pairs; monotone in both fields of every part. */
export class LinearTimeModel implements TimeModel {
  readonly coefficients: LinearTimeCoefficients;

  /** @throws INVALID_ARGUMENT for a coefficient that is negative or not finite */
  constructor(coefficients: LinearTimeCoefficients) {
    const { baseS, perNewTokenS, perAttentionTokenS, perAttentionPairS } = coefficients;
    const checked = { baseS, perNewTokenS, perAttentionTokenS, perAttentionPairS };
    this.coefficients = checked;
    for (const [name, value] of Object.entries(checked)) {
      requireFinite(name, value, 'not negative', 'fit the coefficients to measured forwards');
    }
  }

  /**
   * An empty batch takes no time.
   *
   * @throws INVALID_ARGUMENT for token counts that are negative or no integers
   */
  predict(batch: readonly BatchPart[]): BatchTime {
    const { baseS, perNewTokenS, perAttentionTokenS, perAttentionPairS } = this.coefficients;
    let newTokens = 0;
    let pairs = 0;
    for (const part of batch) {
      requireInteger('cachedTokens', part.cachedTokens, 0, 'count the tokens whose KV is there');
      requireInteger('newTokens', part.newTokens, 0, 'count the tokens to compute');
      newTokens += part.newTokens;
      pairs += attentionPairs(part);
    }
    const attentionS = perAttentionTokenS * newTokens + perAttentionPairS * pairs;
    const restS = batch.length === 0 ? 0 : baseS + perNewTokenS * newTokens;
    return { attentionS, totalS: attentionS + restS };
  }
}
