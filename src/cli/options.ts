import { InvalidArgumentError } from 'commander';

/**
 * Parsers of option values, for commander's `.option(flags, description, parser)`. Each throws with the forms it
 * takes; commander adds the option's name and the value.
 */

const sizeUnits: Readonly<Record<string, number>> = {
  B: 1,
  KB: 1e3,
  MB: 1e6,
  GB: 1e9,
  TB: 1e12,
  KiB: 2 ** 10,
  MiB: 2 ** 20,
  GiB: 2 ** 30,
  TiB: 2 ** 40,
};

const bitUnits: Readonly<Record<string, number>> = { b: 1 / 8, Kb: 125, Mb: 125e3, Gb: 125e6, Tb: 125e9 };

/** A whole number of at least 1. */
export function positiveInteger(text: string): number {
  return wholeNumber(text, 1);
}

/** A whole number of at least 0. */
export function nonNegativeInteger(text: string): number {
  return wholeNumber(text, 0);
}

function wholeNumber(text: string, least: number): number {
  const value = /^\d+$/.test(text) ? Number(text) : NaN;
  if (Number.isSafeInteger(value) && value >= least) return value;
  throw new InvalidArgumentError(`Give a whole number from ${least} to ${Number.MAX_SAFE_INTEGER}.`);
}

/** A number above 0, decimal or in exponent form. */
export function positiveNumber(text: string): number {
  const value = /^(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text) ? Number(text) : NaN;
  if (value > 0 && Number.isFinite(value)) return value;
  throw new InvalidArgumentError('Give a number above 0, such as 0.25.');
}

export function nonNegativeNumber(text: string): number {
  return text.trim() === '0' ? 0 : positiveNumber(text);
}

/** A size such as `64MiB`, `1.5GB` or `4096` (bytes), in bytes. */
export function sizeBytes(text: string): number {
  const { value, unit } = quantity(text);
  const bytes = value * (sizeUnits[unit === '' ? 'B' : unit] ?? NaN);
  if (Number.isSafeInteger(bytes) && bytes > 0) return bytes;
  throw new InvalidArgumentError(
    `Give a size of a whole number of bytes, such as 64MiB; units: ${Object.keys(sizeUnits).join(', ')}.`,
  );
}

/** A rate such as `64MB/s` (bytes) or `1Gb/s` (bits), in bytes per second. */
export function rateBytesPerSecond(text: string): number {
  const { value, unit } = quantity(text);
  const name = unit.endsWith('/s') ? unit.slice(0, -2) : '';
  const rate = value * (sizeUnits[name] ?? bitUnits[name] ?? NaN);
  if (Number.isFinite(rate) && rate > 0) return rate;
  throw new InvalidArgumentError(
    'Give a rate in bytes per second, such as 64MB/s or 1GiB/s, or in bits per second, such as 1Gb/s.',
  );
}

/** A list separated by commas, each item by `item`: `1,2,4`. At most 256 items. */
export function listOf<T>(item: (text: string) => T): (text: string) => T[] {
  return (text) => {
    const items = text.split(',').map((part) => part.trim());
    if (items.includes('')) throw new InvalidArgumentError('Give items separated by commas, none empty.');
    if (items.length > 256) throw new InvalidArgumentError('Give at most 256 items.');
    return items.map(item);
  };
}

function quantity(text: string): { value: number; unit: string } {
  const match = /^(\d+\.?\d*|\.\d+) ?([A-Za-z/]*)$/.exec(text);
  return { value: Number(match?.[1] ?? NaN), unit: match?.[2] ?? '' };
}
