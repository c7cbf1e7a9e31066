import { z } from 'zod';
import { DualPathError } from '../errors/index.js';
import { traceLimits } from './types.js';

/** Where a value was read, for error messages. */
export interface LinePlace {
  readonly path: string;
  readonly line: number;
}

/** A schema whose every complaint says what was expected; checkLine adds what was found, and where. */
export function wholeNumber(least: number, most: number): z.ZodNumber {
  const error = `a whole number from ${least} to ${most}`;
  return z.number({ error }).int({ error }).min(least, { error }).max(most, { error });
}

export function nonNegative(unit: string): z.ZodNumber {
  const error = `a number of ${unit}, 0 or more`;
  return z.number({ error }).min(0, { error }).max(Number.MAX_SAFE_INTEGER, { error });
}

export function text(what: string): z.ZodString {
  const error = `${what} of 1 to 256 characters`;
  return z.string({ error }).min(1, { error }).max(256, { error });
}

/** An array of 1 to turnsPerSession turns. */
export function turnList<T extends z.ZodType>(turn: T): z.ZodArray<T> {
  const error = `a list of 1 to ${traceLimits.turnsPerSession} turns`;
  return z.array(turn, { error }).min(1, { error }).max(traceLimits.turnsPerSession, { error });
}

/** The line's value as the schema's type, or INVALID_TRACE for the first thing wrong with it. */
export function checkLine<T>(schema: z.ZodType<T>, value: unknown, place: LinePlace): T {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const issues = result.error.issues;
  // A misspelt key says more than the missing one it leaves behind.
  const issue = issues.find(({ code }) => code === 'unrecognized_keys') ?? issues[0];
  if (issue?.code === 'unrecognized_keys') {
    const where = [...issue.path, issue.keys[0] ?? ''];
    throw invalidLine(place, where, 'no key of this name; check its spelling', valueAt(value, where));
  }
  throw invalidLine(
    place,
    issue?.path ?? [],
    issue?.message ?? 'a valid line',
    valueAt(value, issue?.path ?? []),
  );
}

/** INVALID_TRACE naming file, line, field, what was expected and what was found. */
export function invalidLine(
  place: LinePlace,
  where: readonly PropertyKey[],
  expected: string,
  found: unknown,
): DualPathError {
  const field = where.map((step) => (typeof step === 'number' ? `[${step}]` : `.${String(step)}`)).join('');
  const name = field.replace(/^\./, '');
  const shown = show(found);
  return new DualPathError(
    'INVALID_TRACE',
    `${place.path}:${place.line}: ${name === '' ? '' : `${name}: `}expected ${expected}, found ${shown}`,
    { path: place.path, line: place.line, field: name, expected, found: shown },
  );
}

function valueAt(value: unknown, path: readonly PropertyKey[]): unknown {
  let at = value;
  for (const step of path) {
    if (typeof at !== 'object' || at === null) return undefined;
    at = (at as Record<PropertyKey, unknown>)[step];
  }
  return at;
}

function show(value: unknown): string {
  if (value === undefined) return 'nothing';
  if (Array.isArray(value)) return `a list of ${value.length}`;
  const json = JSON.stringify(value);
  return json.length > 80 ? `${json.slice(0, 77)}...` : json;
}
