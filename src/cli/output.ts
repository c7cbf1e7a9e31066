import { DualPathError, type ErrorCode } from '../errors/index.js';
import { jsonValue } from '../json/index.js';

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
  return `${JSON.stringify(jsonValue(value), null, 2)}\n`;
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
