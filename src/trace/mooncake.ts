import { z } from 'zod';
import { checkLine, invalidLine, nonNegative, wholeNumber, type LinePlace } from './schema.js';
import { checkSession } from './conversation.js';
import { traceLimits, type TraceEntry } from './types.js';

/** Tokens of a hashed block (Mooncake, FAST 2025). */
const blockTokens = 512;

const requestSchema = z.object(
  {
    timestamp: nonNegative('milliseconds'),
    input_length: wholeNumber(1, traceLimits.tokens),
    output_length: wholeNumber(0, traceLimits.tokens),
    hash_ids: z.array(wholeNumber(0, 2 ** 32 - 1), { error: 'a list of block hash ids' }),
  },
  { error: 'a JSON object' },
);

/** A line of a Mooncake trace: one request, read as a session of one turn named after its line. */
export function readMooncake(value: unknown, place: LinePlace): TraceEntry {
  const line = checkLine(requestSchema, value, place);
  const blocks = Math.ceil(line.input_length / blockTokens);
  if (line.hash_ids.length !== blocks) {
    const expected = `${blocks} ids, one for each ${blockTokens} tokens of input_length ${line.input_length}`;
    throw invalidLine(place, ['hash_ids'], expected, line.hash_ids);
  }
  const session = {
    id: `request-${place.line}`,
    prefix: [],
    turns: [
      {
        promptTokens: line.input_length,
        outputTokens: line.output_length,
        traceHitTokens: null,
        arrivalMs: line.timestamp,
        thinkMs: null,
        identity: { kind: 'blocks', blockTokens, hashIds: line.hash_ids },
      },
    ],
  } as const;
  return { session: checkSession(session, place), duplicateOf: null };
}
