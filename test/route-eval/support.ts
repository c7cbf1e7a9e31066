import { routeTrace, type ClusterSetting, type RouteTrace } from '../../src/route-eval/index.js';
import type { Session } from '../../src/trace/index.js';

export const setting: ClusterSetting = {
  replicas: 3,
  cacheTokens: 64 * 512,
  prefillSPerToken: 0.001,
  sloS: 5,
  dispatchedTokensMax: 2000,
  queueOrder: 'fifo',
  ageBoundS: 30,
};

/** Requests of these blocks and times. */
export function traceOf(
  requests: readonly { atMs: number; ids: readonly number[]; tokens?: number }[],
): RouteTrace {
  const sessions = requests.map(({ atMs, ids, tokens }, i): Session => ({
    id: `request-${i + 1}`,
    prefix: [],
    turns: [
      {
        promptTokens: tokens ?? ids.length * 512,
        outputTokens: 1,
        traceHitTokens: null,
        arrivalMs: atMs,
        thinkMs: null,
        identity: { kind: 'blocks', blockTokens: 512, hashIds: ids },
      },
    ],
  }));
  return routeTrace('test', sessions, { requests: 1e6, maxPromptTokens: 20_480 });
}
