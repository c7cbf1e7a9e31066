import { DualPathError } from '../errors/index.js';
import type { Session } from '../trace/index.js';

/** Requests as flat tables, cut to a length and without text, that a run reads and threads share. */
export interface RouteTrace {
  readonly name: string;
  readonly blockTokens: number;
  readonly arrivalMs: Float64Array;
  /** After cutting. */
  readonly promptTokens: Uint32Array;
  /** Request i has the ids [starts[i], starts[i + 1]), one for each full block. */
  readonly starts: Uint32Array;
  readonly ids: Uint32Array;
}

export interface TraceOptions {
  /** Requests to take, the first by arrival. */
  readonly requests: number;
  /** Prompts are cut to so many tokens. */
  readonly maxPromptTokens: number;
}

/** @throws INVALID_ARGUMENT unless the sessions are single requests with hashed blocks and arrival times */
export function routeTrace(name: string, sessions: readonly Session[], options: TraceOptions): RouteTrace {
  const taken = sessions.slice(0, options.requests);
  const blockTokens = blockTokensOf(name, taken);
  const starts = new Uint32Array(taken.length + 1);
  const ids: number[] = [];
  const promptTokens = new Uint32Array(taken.length);
  const arrivalMs = new Float64Array(taken.length);
  for (const [i, session] of taken.entries()) {
    const turn = session.turns[0]!;
    const { identity } = turn;
    const hashIds = identity.kind === 'blocks' ? identity.hashIds : [];
    const tokens = Math.min(turn.promptTokens, options.maxPromptTokens);
    promptTokens[i] = tokens;
    arrivalMs[i] = turn.arrivalMs!;
    for (let block = 0; block < Math.floor(tokens / blockTokens); block++) ids.push(hashIds[block]!);
    starts[i + 1] = ids.length;
  }
  return { name, blockTokens, arrivalMs, promptTokens, starts, ids: Uint32Array.from(ids) };
}

function blockTokensOf(name: string, sessions: readonly Session[]): number {
  const sizes = new Set<number>();
  for (const { id, turns } of sessions) {
    const turn = turns[0];
    if (turns.length !== 1 || turn?.identity.kind !== 'blocks' || turn.arrivalMs === null) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `${id} of ${name} is no single request with block hashes and an arrival time: give a trace in the mooncake ` +
          'format, or tool-agent',
        { trace: name, session: id },
      );
    }
    sizes.add(turn.identity.blockTokens);
  }
  const [blockTokens, other] = [...sizes];
  if (blockTokens !== undefined && other === undefined) return blockTokens;
  throw new DualPathError(
    'INVALID_ARGUMENT',
    `${name} has ${sizes.size} sizes of blocks: give a trace with requests, all hashed by one size of block`,
    { trace: name, block_sizes: sizes.size },
  );
}

/** Most that any router can hit: one cache without a limit under the same requests, those after the warm-up counted. */
export function infiniteCacheHitRate(trace: RouteTrace, warmUpRequests: number): number {
  const seen = new Set<number>();
  let [hit, total] = [0, 0];
  for (let i = 0; i < trace.promptTokens.length; i++) {
    const tokens = trace.promptTokens[i]!;
    const [start, end] = [trace.starts[i]!, trace.starts[i + 1]!];
    const most = Math.min(end - start, Math.floor((tokens - 1) / trace.blockTokens));
    let blocks = 0;
    while (blocks < most && seen.has(trace.ids[start + blocks]!)) blocks++;
    for (let at = start; at < end; at++) seen.add(trace.ids[at]!);
    if (i < warmUpRequests) continue;
    hit += blocks * trace.blockTokens;
    total += tokens;
  }
  return total === 0 ? 0 : hit / total;
}
