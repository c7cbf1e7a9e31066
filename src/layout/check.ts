/** Argument checks and the wording of values in errors, shared by this folder's files. */
import { inspect } from 'node:util';
import { DualPathError } from '../errors/index.js';

const shownCharacters = 80;

/** A value as an error message shows it: JSON where there is such, cut to a readable length. */
export function show(value: unknown): string {
  if (value === undefined) {
    return 'missing';
  }
  // JSON.stringify turns NaN and the infinities into null, throws on a bigint and has no text for a function.
  const asJson = typeof value === 'object' || typeof value === 'string';
  const shown = asJson ? JSON.stringify(value) : inspect(value);
  return shown.length > shownCharacters ? `${shown.slice(0, shownCharacters)}...` : shown;
}

/**
 * Returns `value` if it is an integer in [least, most].
 * @throws DualPathError INVALID_ARGUMENT naming the argument, the value, the limits and the remedy.
 */
export function integerArgument(name: string, value: number, least: number, most: number): number {
  if (!Number.isSafeInteger(value) || value < least || value > most) {
    const message = `${name} is ${show(value)}, outside ${least} to ${most}: pass an integer in that range`;
    throw new DualPathError('INVALID_ARGUMENT', message, { argument: name, value: show(value), least, most });
  }
  return value;
}
