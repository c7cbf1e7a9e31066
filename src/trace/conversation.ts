import { invalidLine, type LinePlace } from './schema.js';
import { keptTokensOf, traceLimits, type Session } from './types.js';

/** The lengths of a turn before this one, as far as identity needs them. */
export interface PreviousTurn {
  readonly promptTokens: number;
  readonly outputTokens: number;
}

/**
 * How much of the previous conversation a prompt begins with, judged by lengths alone. A prompt that grew by
 * at least the reply kept prompt and reply; one that grew by less kept the prompt but not the reply; one that
 * shrank was cut at what the traced system's cache still matched.
 */
export function keptByLengths(previous: PreviousTurn, promptTokens: number, hitTokens: number): number {
  const growth = promptTokens - previous.promptTokens;
  if (growth >= previous.outputTokens) return previous.promptTokens + previous.outputTokens;
  if (growth >= 0) return previous.promptTokens;
  return Math.min(hitTokens, promptTokens);
}

/** Refuses what a single field's range cannot: a context or a session of too many tokens. */
export function checkSession(session: Session, place: LinePlace): Session {
  let distinct = 0;
  for (const [index, turn] of session.turns.entries()) {
    const context = turn.promptTokens + turn.outputTokens;
    if (context > traceLimits.tokens) {
      throw invalidLine(place, ['turns', index], `at most ${traceLimits.tokens} tokens in a turn`, context);
    }
    distinct += context - keptTokensOf(turn);
  }
  if (distinct > traceLimits.tokens) {
    throw invalidLine(place, ['turns'], `at most ${traceLimits.tokens} distinct tokens`, distinct);
  }
  return session;
}
