import { DualPathError } from '../errors/index.js';
import { keptTokensOf, traceLimits, type PrefixSegment, type Session, type Turn } from './types.js';

/** A length times the factor, rounded; what was not empty stays at least 1. */
function scaled(tokens: number, factor: number): number {
  return tokens === 0 ? 0 : Math.max(1, Math.round(tokens * factor));
}

/**
 * All of a session's lengths by one factor, each rounded by itself so that errors do not add up over turns,
 * then corrected where rounding would break a relation: what was kept of the previous conversation (all of
 * it, its prompt, a part) is kept of the scaled one, a prompt with new tokens has at least one, a prompt that
 * grew does not shrink nor the reverse, a hit stays within prompt and kept part. Times are not scaled.
 */
export function scaleSession(session: Session, factor: number): Session {
  const prefix = scalePrefix(session.prefix, factor);
  const prefixTokens = prefix.reduce((sum, segment) => sum + segment.tokens, 0);
  const turns: Turn[] = [];
  for (const [index, turn] of session.turns.entries()) {
    const before = session.turns[index - 1];
    const beforeScaled = turns[index - 1];
    let next: Turn;
    if (turn.identity.kind === 'blocks') next = scaleBlocks(turn, factor);
    else if (before === undefined || beforeScaled === undefined) {
      const own = session.prefix.reduce((sum, segment) => sum + segment.tokens, 0);
      const least = prefixTokens + (turn.promptTokens > own ? 1 : 0);
      next = rebuild(turn, factor, 0, Math.max(scaled(turn.promptTokens, factor), least));
    } else next = scaleTurn(turn, before, beforeScaled, factor);
    if (next.promptTokens + next.outputTokens > traceLimits.tokens) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `scale ${factor} makes turn ${index} of session ${session.id} ` +
          `${next.promptTokens + next.outputTokens} tokens, over the limit of ${traceLimits.tokens}: use less`,
        { scale: factor, session: session.id, turn: index, limit_tokens: traceLimits.tokens },
      );
    }
    turns.push(next);
  }
  return { id: session.id, prefix, turns };
}

/** Segment ends are scaled, not lengths, so that a shared head of segments stays shared to the token. */
function scalePrefix(prefix: readonly PrefixSegment[], factor: number): PrefixSegment[] {
  let end = 0;
  let scaledEnd = 0;
  return prefix.map(({ name, tokens }) => {
    end += tokens;
    const start = scaledEnd;
    scaledEnd = Math.max(start + 1, scaled(end, factor));
    return { name, tokens: scaledEnd - start };
  });
}

function scaleTurn(turn: Turn, before: Turn, beforeScaled: Turn, factor: number): Turn {
  const kept = keptTokensOf(turn);
  const least = turn.promptTokens > kept ? 1 : 0;
  const prompt = scaled(turn.promptTokens, factor);
  if (turn.promptTokens < before.promptTokens) {
    const keptScaled = Math.min(scaled(kept, factor), prompt - least);
    return rebuild(turn, factor, keptScaled, least === 0 ? keptScaled : prompt);
  }
  const all = beforeScaled.promptTokens + beforeScaled.outputTokens;
  let keptScaled: number;
  if (kept === before.promptTokens + before.outputTokens) keptScaled = all;
  else if (kept === before.promptTokens) keptScaled = beforeScaled.promptTokens;
  else if (kept > before.promptTokens) {
    keptScaled = Math.min(Math.max(scaled(kept, factor), beforeScaled.promptTokens), all);
  } else keptScaled = Math.min(scaled(kept, factor), beforeScaled.promptTokens);
  const grown = Math.max(prompt, keptScaled + least, beforeScaled.promptTokens);
  return rebuild(turn, factor, keptScaled, least === 0 ? keptScaled : grown);
}

function rebuild(turn: Turn, factor: number, keptTokens: number, promptTokens: number): Turn {
  const hit = turn.traceHitTokens;
  const most = hit !== null && hit <= keptTokensOf(turn) ? keptTokens : promptTokens;
  return {
    ...turn,
    promptTokens,
    outputTokens: scaled(turn.outputTokens, factor),
    traceHitTokens: hit === null ? null : Math.min(scaled(hit, factor), most),
    identity: { kind: 'conversation', keptTokens },
  };
}

/** A block's length is scaled; the prompt is as many whole blocks as before and a scaled last one. */
function scaleBlocks(turn: Turn, factor: number): Turn {
  if (turn.identity.kind !== 'blocks') return turn;
  const { blockTokens, hashIds } = turn.identity;
  const scaledBlock = scaled(blockTokens, factor);
  const tail = turn.promptTokens - (hashIds.length - 1) * blockTokens;
  const scaledTail = tail === blockTokens ? scaledBlock : Math.min(scaled(tail, factor), scaledBlock);
  return {
    ...turn,
    promptTokens: (hashIds.length - 1) * scaledBlock + scaledTail,
    outputTokens: scaled(turn.outputTokens, factor),
    identity: { kind: 'blocks', blockTokens: scaledBlock, hashIds },
  };
}
