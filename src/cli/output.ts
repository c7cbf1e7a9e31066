import { DualPathError, type ErrorCode } from '../errors/index.js';

/** What the process exits with; the table is what `dualpath --help` prints. */
export const exitCodes = {
  ok: { code: 0, meaning: 'done, all checks passed' },
  failed: { code: 1, meaning: 'the run or one of its checks failed' },
  usage: { code: 2, meaning: 'bad usage or input; the message says what to change' },
  interrupted: { code: 130, meaning: 'interrupted (SIGINT)' },
} as const;

/** Errors that another command line or another input file would have avoided. */
const inputErrors: readonly ErrorCode[] = [
  'INVALID_ARGUMENT',
  'INVALID_MODEL',
  'INVALID_TRACE',
  'STORE_MISMATCH',
  'REQUEST_TOO_LARGE',
];

export function exitCodeOf(error: unknown): number {
  const isInput = error instanceof DualPathError && inputErrors.includes(error.code);
  return (isInput ? exitCodes.usage : exitCodes.failed).code;
}

/**
 * One JSON document and a newline. Keys in camelCase become snake_case, so that results can be passed as they
 * are; other keys stay. A bigint becomes a number where that is exact and a decimal string where not.
 */
export function toJson(value: unknown): string {
  return `${JSON.stringify(jsonValue(value, '$'), null, 2)}\n`;
}

function jsonValue(value: unknown, path: string): unknown {
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

function snakeCase(key: string): string {
  if (!/^[a-z][A-Za-z0-9]*$/.test(key)) return key;
  return key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** The `error` document of `--json`. */
export function errorDocument(error: unknown): { error: { code: string; message: string; details: object } } {
  if (error instanceof DualPathError) {
    return { error: { code: error.code, message: error.message, details: error.details } };
  }
  const message = error instanceof Error ? error.message : String(error);
  return { error: { code: 'INTERNAL', message, details: {} } };
}

/** For stderr: the message, and the stack only where the fault is this program's. */
export function errorText(error: unknown): string {
  if (error instanceof DualPathError && error.code !== 'INTERNAL') {
    return `error: ${error.message} (${error.code})\n`;
  }
  const stack = error instanceof Error ? (error.stack ?? error.message) : String(error);
  return `error: this is a fault in dualpath, please report it\n${stack}\n`;
}
