import { DualPathError } from '../errors/index.js';

/**
 * A value as JSON documents have it: keys in camelCase become snake_case, other keys stay; what is undefined is left
 * out; a bigint becomes a number where that is exact and a decimal string where not.
 * @throws INTERNAL for a number that JSON has no text for
 */
export function jsonValue(value: unknown, path = '$'): unknown {
  if (typeof value === 'bigint') {
    const number = Number(value);
    return Number.isSafeInteger(number) ? number : value.toString();
  }
  if (typeof value === 'number' && !Number.isFinite(value)) {
    throw new DualPathError('INTERNAL', `${path} of a JSON result is ${value}`, {
      path,
      value: String(value),
    });
  }
  if (Array.isArray(value)) return value.map((item, index) => jsonValue(item, `${path}[${index}]`));
  if (typeof value === 'object' && value !== null) {
    const entries = Object.entries(value).filter(([, item]) => item !== undefined);
    return Object.fromEntries(
      entries.map(([key, item]) => [snakeCase(key), jsonValue(item, `${path}.${key}`)]),
    );
  }
  return value;
}

/** A document read again: its keys in camelCase. */
export function camelCaseKeys(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(camelCaseKeys);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [camelCase(key), camelCaseKeys(item)]),
  );
}

function snakeCase(key: string): string {
  if (!/^[a-z][A-Za-z0-9]*$/.test(key)) return key;
  return key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

function camelCase(key: string): string {
  return key.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
}
