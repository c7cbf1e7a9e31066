import { DualPathError } from '../errors/index.js';

/** Throws INVALID_ARGUMENT unless `value` is a safe integer of at least `min`. */
export function requireInteger(name: string, value: number, min: number, remedy: string): void {
  if (Number.isSafeInteger(value) && value >= min) return;
  throw new DualPathError(
    'INVALID_ARGUMENT',
    `${name} is ${value}, but must be an integer from ${min} to ${Number.MAX_SAFE_INTEGER}: ${remedy}`,
    { name, value, min },
  );
}

/** Throws INVALID_ARGUMENT if `value` is over `max`. */
export function requireAtMost(name: string, value: number, max: number, remedy: string): void {
  if (value <= max) return;
  throw new DualPathError('INVALID_ARGUMENT', `${name} is ${value}, the limit is ${max}: ${remedy}`, {
    name,
    value,
    max,
  });
}

/** Throws INVALID_ARGUMENT unless `value` is finite and, as `bound` says, positive or not negative. */
export function requireFinite(
  name: string,
  value: number,
  bound: 'positive' | 'not negative',
  remedy: string,
): void {
  if (Number.isFinite(value) && (bound === 'positive' ? value > 0 : value >= 0)) return;
  throw new DualPathError(
    'INVALID_ARGUMENT',
    `${name} is ${value}, but must be finite and ${bound}: ${remedy}`,
    { name, value },
  );
}

/** Throws INVALID_ARGUMENT unless `value` is a non-empty string. */
export function requireName(name: string, value: string): void {
  if (typeof value === 'string' && value.length > 0) return;
  throw new DualPathError('INVALID_ARGUMENT', `${name} is empty or no string: give it a name`, { name });
}
