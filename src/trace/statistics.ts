import { setImmediate } from 'node:timers/promises';
import { DualPathError } from '../errors/index.js';
import { BlockCache, BlockChain } from './block-cache.js';
import { SessionTokens } from './session-tokens.js';
import { keptTokensOf, type Session } from './types.js';
import type { Workload } from './workload.js';

/** Of a list of numbers; quantiles interpolate linearly between order statistics. */
export interface Summary {
  readonly count: number;
  readonly total: number;
  readonly mean: number;
  readonly median: number;
  readonly p90: number;
}

export interface HitRate {
  readonly hit: number;
  readonly total: number;
  /** hit / total. */
  readonly rate: number;
}

export interface TraceStatistics {
  readonly sessions: number;
  readonly turns: Summary;
  readonly promptTokens: Summary;
  readonly firstPromptTokens: Summary;
  /** Prompt tokens not taken over from the conversation so far, of the turns after the first; null without any. */
  readonly appendTokens: Summary | null;
  readonly outputTokens: Summary;
  /** Length of each session's shared segments, and how many distinct ones there are. */
  readonly sharedPrefixTokens: Summary;
  readonly sharedPrefixes: number;
  readonly blockTokens: number;
  /** Distinct full blocks of all conversations: what an infinite cache ends up with. */
  readonly distinctBlocks: number;
  /** Prompt tokens in leading full blocks that the same session had computed before. */
  readonly inSessionHit: HitRate;
  /** The same for one infinite cache under all sessions. */
  readonly infiniteCacheHit: HitRate;
  /**
   * By the trace's own account: prompt tokens its system found cached, or leading hash ids seen in an earlier
   * request, the last and partial block counting as one; null where it records neither.
   */
  readonly traceHit: (HitRate & { readonly unit: 'tokens' | 'blocks' }) | null;
  /** Prompt tokens its system did not find cached; null where not recorded. */
  readonly traceUncachedTokens: Summary | null;
  /** From the first to the last arrival of all sessions; null without a common clock. */
  readonly traceDurationS: number | null;
  /** From each session's first to its last arrival, of sessions with several; null without any. */
  readonly sessionDurationS: Summary | null;
  readonly thinkS: Summary | null;
}

export interface StatisticsOptions {
  /** Tokens of a block, 1 to 65536; default 64. */
  readonly blockTokens?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Called as sessions are done. */
  readonly onSession?: ((done: number) => void) | undefined;
}

/**
 * Lengths, times and hit rates of a workload. Hits are found by identity: a walk over the chain of full
 * blocks of every prompt against the blocks stored so far. After a turn the full blocks of its prompt and
 * reply are stored, without the last generated token, which has no KV-Cache yet. Sessions are walked one
 * after the other: with an infinite cache only what is stored counts, not when.
 */
export async function traceStatistics(
  workload: Workload,
  options: StatisticsOptions = {},
): Promise<TraceStatistics> {
  const blockTokens = options.blockTokens ?? 64;
  if (!Number.isInteger(blockTokens) || blockTokens < 1 || blockTokens > 65536) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `a block must have a whole number of tokens from 1 to 65536, not ${blockTokens}`,
      { block_tokens: String(blockTokens) },
    );
  }
  const cache = new BlockCache();
  const hits = { own: 0, any: 0 };
  for (const [index, session] of workload.sessions.entries()) {
    await walkSession(session, index, workload.seed, blockTokens, cache, hits, options.signal);
    options.onSession?.(index + 1);
  }
  const turns = workload.sessions.flatMap((session) => session.turns);
  const appends = workload.sessions.flatMap((session) =>
    session.turns.slice(1).map((turn) => turn.promptTokens - keptTokensOf(turn)),
  );
  const promptTokens = summarize(turns.map((turn) => turn.promptTokens));
  const names = workload.sessions.flatMap(({ prefix }) => prefix.map(({ name }) => name));
  return {
    sessions: workload.sessions.length,
    turns: summarize(workload.sessions.map((session) => session.turns.length)),
    promptTokens,
    firstPromptTokens: summarize(workload.sessions.map((session) => session.turns[0]?.promptTokens ?? 0)),
    appendTokens: appends.length === 0 ? null : summarize(appends),
    outputTokens: summarize(turns.map((turn) => turn.outputTokens)),
    sharedPrefixTokens: summarize(
      workload.sessions.map(({ prefix }) => prefix.reduce((sum, { tokens }) => sum + tokens, 0)),
    ),
    sharedPrefixes: new Set(names).size,
    blockTokens,
    distinctBlocks: cache.size,
    inSessionHit: rateOf(hits.own, promptTokens.total),
    infiniteCacheHit: rateOf(hits.any, promptTokens.total),
    ...recordedHits(workload),
    ...durations(workload),
  };
}

async function walkSession(
  session: Session,
  index: number,
  seed: number,
  blockTokens: number,
  cache: BlockCache,
  hits: { own: number; any: number },
  signal: AbortSignal | undefined,
): Promise<void> {
  const tokens = new SessionTokens(session, seed);
  const longest = session.turns.reduce(
    (most, turn) => Math.max(most, turn.promptTokens + turn.outputTokens),
    0,
  );
  const chain = new BlockChain(blockTokens, longest);
  let chained = 0;
  let stored = 0;
  for (const [turnIndex, turn] of session.turns.entries()) {
    // Statistics take seconds without this loop ever waiting: let signals and timers in.
    if ((index + turnIndex) % 16 === 0) await setImmediate();
    if (signal?.aborted === true) {
      throw new DualPathError('CANCELLED', `statistics were cancelled at session ${index}`, {
        session: index,
      });
    }
    const conversation = tokens.conversationOf(turnIndex);
    const unchanged = Math.floor(keptTokensOf(turn) / blockTokens);
    const full = Math.floor(conversation.length / blockTokens);
    chain.update(conversation, Math.min(chained, unchanged), full);
    chained = full;

    const promptBlocks = Math.floor(turn.promptTokens / blockTokens);
    // Unchanged blocks that this session stored last turn are still there.
    let block = Math.min(stored, unchanged, promptBlocks);
    let own = block;
    for (; block < promptBlocks; block++) {
      const owner = cache.ownerOf(chain.low[block] ?? 0, chain.high[block] ?? 0);
      if (owner < 0) break;
      // Having stored a block, the session has stored all before it, so its own hits lead too.
      if (owner === index) own++;
    }
    hits.own += own * blockTokens;
    hits.any += block * blockTokens;

    const cached = turn.promptTokens + Math.max(0, turn.outputTokens - 1);
    const storedBefore = Math.min(stored, unchanged);
    stored = Math.floor(cached / blockTokens);
    for (let i = storedBefore; i < stored; i++) cache.store(chain.low[i] ?? 0, chain.high[i] ?? 0, index);
  }
}

function recordedHits({ sessions }: Workload): Pick<TraceStatistics, 'traceHit' | 'traceUncachedTokens'> {
  const turns = sessions.flatMap((session) => session.turns);
  const uncached: number[] = [];
  let prompt = 0;
  const seen = new Set<number>();
  let [hitBlocks, blocks] = [0, 0];
  for (const { identity, promptTokens, traceHitTokens } of turns) {
    if (traceHitTokens !== null) {
      uncached.push(promptTokens - traceHitTokens);
      prompt += promptTokens;
    } else if (identity.kind === 'blocks') {
      const miss = identity.hashIds.findIndex((id) => !seen.has(id));
      hitBlocks += miss < 0 ? identity.hashIds.length : miss;
      blocks += identity.hashIds.length;
      for (const id of identity.hashIds) seen.add(id);
    }
  }
  if (uncached.length === turns.length) {
    const traceUncachedTokens = summarize(uncached);
    const hit = rateOf(prompt - traceUncachedTokens.total, prompt);
    return { traceHit: { unit: 'tokens', ...hit }, traceUncachedTokens };
  }
  const traceHit = blocks === 0 ? null : { unit: 'blocks' as const, ...rateOf(hitBlocks, blocks) };
  return { traceHit, traceUncachedTokens: null };
}

function durations({
  clock,
  sessions,
}: Workload): Pick<TraceStatistics, 'traceDurationS' | 'sessionDurationS' | 'thinkS'> {
  const spans: number[] = [];
  const thinks: number[] = [];
  let [first, last] = [Infinity, -Infinity];
  for (const { turns } of sessions) {
    const arrivals = turns.flatMap(({ arrivalMs }) => (arrivalMs === null ? [] : [arrivalMs]));
    const [start, end] = [arrivals[0], arrivals.at(-1)];
    if (start !== undefined && end !== undefined) {
      if (arrivals.length > 1) spans.push((end - start) / 1000);
      first = Math.min(first, start);
      last = Math.max(last, end);
    }
    for (const { thinkMs } of turns) if (thinkMs !== null) thinks.push(thinkMs / 1000);
  }
  return {
    traceDurationS: clock === 'trace' ? (last - first) / 1000 : null,
    sessionDurationS: spans.length === 0 ? null : summarize(spans),
    thinkS: thinks.length === 0 ? null : summarize(thinks),
  };
}

function rateOf(hit: number, total: number): HitRate {
  return { hit, total, rate: total === 0 ? 0 : hit / total };
}

/** Summary of a list that is not empty. */
export function summarize(values: readonly number[]): Summary {
  const sorted = Float64Array.from(values).sort();
  const total = sorted.reduce((sum, value) => sum + value, 0);
  const quantile = (q: number): number => {
    const at = q * (sorted.length - 1);
    const low = sorted[Math.floor(at)] ?? 0;
    return low + ((sorted[Math.ceil(at)] ?? low) - low) * (at - Math.floor(at));
  };
  return {
    count: sorted.length,
    total,
    mean: total / sorted.length,
    median: quantile(0.5),
    p90: quantile(0.9),
  };
}
