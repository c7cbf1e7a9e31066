import { DualPathError } from '../errors/index.js';
import type { ClusterSetting } from './simulation.js';

/** The published settings: 8 instances, SLO TTFT below 5 s, and by model the time of a token, the cache and the cut. */
export const modelSettings = {
  '7b': { prefillSPerToken: 0.00016, cacheTokens: 1_000_000, maxPromptTokens: 20_480 },
  '14b': { prefillSPerToken: 0.000127, cacheTokens: 500_000, maxPromptTokens: 10_240 },
} as const;

export type ModelName = keyof typeof modelSettings;

/** Tokens of a prefill step; two are with an engine at once. */
const prefillStepTokens = 8192;

/** @throws INVALID_ARGUMENT for a number of replicas that cannot be emulated */
export function clusterSetting(model: ModelName, replicas: number): ClusterSetting {
  if (!(Number.isInteger(replicas) && replicas >= 1 && replicas <= 1024)) {
    throw new DualPathError('INVALID_ARGUMENT', `${replicas} replicas: give a whole number from 1 to 1024`, {
      replicas: String(replicas),
    });
  }
  const { prefillSPerToken, cacheTokens } = modelSettings[model];
  return {
    replicas,
    cacheTokens,
    prefillSPerToken,
    sloS: 5,
    dispatchedTokensMax: 2 * prefillStepTokens,
    queueOrder: 'fifo',
    ageBoundS: 30,
  };
}
