import { DualPathError } from '../errors/index.js';

/** Where lines go: a logger of pino's, or anything that takes fields and a message. */
export interface Log {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** An error as fields of a line: its stack only where the fault is this program's. */
export function errorFields(error: unknown): { readonly error: object } {
  if (error instanceof DualPathError && error.code !== 'INTERNAL') {
    const { code, message, details } = error;
    const known = Object.entries(details).map(([name, value]) => {
      return [name, typeof value === 'bigint' ? value.toString() : value] as const;
    });
    return { error: { code, message, details: Object.fromEntries(known) } };
  }
  const { message, stack } = error instanceof Error ? error : { message: String(error), stack: undefined };
  return { error: { code: 'INTERNAL', message, ...(stack === undefined ? {} : { stack }) } };
}

/** Milliseconds to the microsecond. */
export const roundedMs = (ms: number): number => Math.round(ms * 1000) / 1000;

/** Printable ASCII without spaces, 128 characters at most: nothing else is passed on as the id of a request. */
export const isRequestId = (text: unknown): text is string =>
  typeof text === 'string' && /^[\x21-\x7e]{1,128}$/.test(text);

/** The trace of a `traceparent` header (W3C Trace Context, version 00); undefined where there is none. */
export function traceIdOf(traceparent: unknown): string | undefined {
  if (typeof traceparent !== 'string') return undefined;
  return /^[\da-f]{2}-([\da-f]{32})-[\da-f]{16}-[\da-f]{2}/.exec(traceparent)?.[1];
}
