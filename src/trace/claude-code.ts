import { z } from 'zod';
import { checkSession, keptByLengths } from './conversation.js';
import {
  checkLine,
  invalidLine,
  nonNegative,
  text,
  turnList,
  wholeNumber,
  type LinePlace,
} from './schema.js';
import { traceLimits, type PrefixSegment, type TraceEntry, type Turn } from './types.js';

const seconds = nonNegative('seconds');

const turnSchema = z.object({
  t: seconds,
  in: wholeNumber(1, traceLimits.tokens),
  out: wholeNumber(0, traceLimits.tokens),
  hit: wholeNumber(0, traceLimits.tokens).nullable(),
  think: seconds.nullable(),
});

const sessionSchema = z.object(
  {
    id: text('a session id'),
    dup_of: text('the id of the original session, or null,').nullable(),
    tool_tokens: wholeNumber(0, traceLimits.tokens),
    system_tokens: wholeNumber(0, traceLimits.tokens),
    turns: turnList(turnSchema),
  },
  { error: 'a JSON object' },
);

/** A line of a `claude-code` trace: one coding-agent session, reduced to lengths. */
export function readClaudeCode(value: unknown, place: LinePlace): TraceEntry {
  const line = checkLine(sessionSchema, value, place);
  const turns: Turn[] = [];
  let previous: Turn | undefined;
  for (const [index, { in: promptTokens, out: outputTokens, hit, t, think }] of line.turns.entries()) {
    if (hit !== null && hit > promptTokens) {
      throw invalidLine(
        place,
        ['turns', index, 'hit'],
        `at most the turn's ${promptTokens} prompt tokens`,
        hit,
      );
    }
    const keptTokens = previous === undefined ? 0 : keptByLengths(previous, promptTokens, hit ?? 0);
    previous = {
      promptTokens,
      outputTokens,
      traceHitTokens: hit,
      arrivalMs: Math.round(t * 1000),
      thinkMs: think === null ? null : Math.round(think * 1000),
      identity: { kind: 'conversation', keptTokens },
    };
    turns.push(previous);
  }
  const firstPrompt = turns[0]?.promptTokens ?? 0;
  const prefix = sharedPrefix(line.tool_tokens, line.system_tokens, firstPrompt);
  return { session: checkSession({ id: line.id, prefix, turns }, place), duplicateOf: line.dup_of };
}

/** Tool definitions are one text where their lengths are equal; so is the system prompt after equal tools. */
function sharedPrefix(toolTokens: number, systemTokens: number, firstPrompt: number): PrefixSegment[] {
  const tools = Math.min(toolTokens, firstPrompt);
  const system = Math.min(systemTokens, firstPrompt - tools);
  return [
    { name: `tools ${toolTokens}`, tokens: tools },
    { name: `tools ${toolTokens} system ${systemTokens}`, tokens: system },
  ].filter((segment) => segment.tokens > 0);
}
