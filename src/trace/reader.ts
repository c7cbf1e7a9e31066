import { DualPathError } from '../errors/index.js';
import { readClaudeCode } from './claude-code.js';
import { readDualPath } from './dualpath.js';
import { readLines, type ReadLinesOptions } from './lines.js';
import { readMooncake } from './mooncake.js';
import { invalidLine, type LinePlace } from './schema.js';
import { traceLimits, type TraceEntry, type TraceFormat } from './types.js';

export interface ReadTraceOptions extends ReadLinesOptions {
  /** Default: told from the first line. */
  readonly format?: TraceFormat | undefined;
}

const readers: Record<TraceFormat, (value: unknown, place: LinePlace) => TraceEntry> = {
  'claude-code': readClaudeCode,
  mooncake: readMooncake,
  dualpath: readDualPath,
};

/**
 * Streams a trace's sessions in file order, one line in memory at a time. Throws INVALID_TRACE at the first
 * malformed line and INVALID_ARGUMENT for a file that cannot be read.
 */
export async function* readTrace(
  path: string,
  options: ReadTraceOptions = {},
): AsyncGenerator<TraceEntry & { readonly format: TraceFormat }> {
  let format = options.format;
  const lineOf = new Map<string, number>();
  for await (const { text, number: line } of readLines(path, options)) {
    const place = { path, line };
    const value = parseJson(text, place);
    format ??= detectFormat(value, place);
    const entry = readers[format](value, place);
    const before = lineOf.get(entry.session.id);
    if (before !== undefined) {
      throw invalidLine(place, ['id'], `an id not used before (line ${before} has it)`, entry.session.id);
    }
    lineOf.set(entry.session.id, line);
    if (lineOf.size > traceLimits.sessions) {
      throw invalidLine(
        place,
        [],
        `at most ${traceLimits.sessions} sessions in a file; split it`,
        lineOf.size,
      );
    }
    yield { ...entry, format };
  }
  if (lineOf.size === 0) {
    throw new DualPathError('INVALID_TRACE', `${path}: expected a session a line, found an empty file`, {
      path,
    });
  }
}

function parseJson(text: string, place: LinePlace): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch (cause) {
    const error = invalidLine(place, [], 'one JSON document on the line', text.trim());
    error.cause = cause;
    throw error;
  }
}

function detectFormat(value: unknown, place: LinePlace): TraceFormat {
  if (typeof value === 'object' && value !== null) {
    if ('format' in value) return 'dualpath';
    if ('hash_ids' in value) return 'mooncake';
    if ('dup_of' in value && 'turns' in value) return 'claude-code';
  }
  throw invalidLine(
    place,
    [],
    'a line with "format" (dualpath), "hash_ids" (mooncake), or "dup_of" and "turns" (claude-code); ' +
      'name the format if it is one of these',
    typeof value === 'object' && value !== null ? { keys: Object.keys(value) } : value,
  );
}
