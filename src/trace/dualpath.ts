import { z } from 'zod';
import { checkSession } from './conversation.js';
import {
  checkLine,
  invalidLine,
  nonNegative,
  text,
  turnList,
  wholeNumber,
  type LinePlace,
} from './schema.js';
import { traceLimits, type TraceEntry, type Turn } from './types.js';

const tokens = wholeNumber(0, traceLimits.tokens);
const milliseconds = nonNegative('milliseconds');

const turnSchema = z.strictObject(
  {
    append: tokens,
    output: tokens,
    keep: tokens.optional(),
    arrival_ms: milliseconds.optional(),
    think_ms: milliseconds.optional(),
  },
  { error: 'a turn: {"append": tokens, "output": tokens}' },
);

const sessionSchema = z.strictObject(
  {
    format: z.literal('dualpath', { error: '"dualpath"' }),
    version: z.literal(1, { error: '1, the only version there is' }),
    id: text('a session id'),
    shared_prefix: z
      .strictObject(
        { name: text('a name'), tokens: wholeNumber(1, traceLimits.tokens) },
        { error: 'a shared prefix: {"name": text, "tokens": tokens}' },
      )
      .optional(),
    turns: turnList(turnSchema),
  },
  { error: 'a JSON object' },
);

/** A line of this package's own format (docs/traces.md): one session, by what each turn adds. */
export function readDualPath(value: unknown, place: LinePlace): TraceEntry {
  const line = checkLine(sessionSchema, value, place);
  const shared = line.shared_prefix;
  const turns: Turn[] = [];
  let conversation = 0;
  let latestMs = 0;
  for (const [index, turn] of line.turns.entries()) {
    const keptTokens = index === 0 ? 0 : (turn.keep ?? conversation);
    if (turn.keep !== undefined && turn.keep > conversation) {
      const expected = `at most the ${conversation} tokens of the conversation before this turn`;
      throw invalidLine(place, ['turns', index, 'keep'], expected, turn.keep);
    }
    const promptTokens = (index === 0 ? (shared?.tokens ?? 0) : keptTokens) + turn.append;
    if (promptTokens === 0) {
      throw invalidLine(place, ['turns', index, 'append'], 'a prompt of at least 1 token', turn.append);
    }
    if (turn.arrival_ms !== undefined) {
      if (turn.arrival_ms < latestMs) {
        const expected = `no time before the turns above it (${latestMs})`;
        throw invalidLine(place, ['turns', index, 'arrival_ms'], expected, turn.arrival_ms);
      }
      latestMs = turn.arrival_ms;
    }
    turns.push({
      promptTokens,
      outputTokens: turn.output,
      traceHitTokens: null,
      arrivalMs: turn.arrival_ms ?? null,
      thinkMs: turn.think_ms ?? null,
      identity: { kind: 'conversation', keptTokens },
    });
    conversation = promptTokens + turn.output;
  }
  const session = { id: line.id, prefix: shared === undefined ? [] : [shared], turns };
  return { session: checkSession(session, place), duplicateOf: null };
}
