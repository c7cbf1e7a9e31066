import { describe, expect, it } from 'vitest';
import { errorDocument, errorText, exitCodeOf, toJson } from '../../src/cli/output.js';
import { DualPathError, errorCodes, type ErrorCode } from '../../src/errors/index.js';

describe('toJson', () => {
  it('writes keys in snake_case and bigints without loss', () => {
    const value = {
      latencyUs: { p90: 1.5 },
      bytesRead: 2n ** 53n - 1n,
      counter: 2n ** 63n,
      list: [{ aB: 1n }],
      none: undefined,
    };
    expect(JSON.parse(toJson(value))).toEqual({
      latency_us: { p90: 1.5 },
      bytes_read: Number.MAX_SAFE_INTEGER,
      counter: '9223372036854775808',
      list: [{ a_b: 1 }],
    });
    expect(toJson(value).endsWith('}\n')).toBe(true);
  });

  it('leaves keys that are data alone', () => {
    expect(JSON.parse(toJson({ 'PE read': { Qwen32B: 1, snake_case: null } }))).toEqual({
      'PE read': { Qwen32B: 1, snake_case: null },
    });
  });

  it('refuses numbers that JSON cannot hold, naming where', () => {
    expect(() => toJson({ a: [{ rateShare: NaN }] })).toThrow(
      /\$\.a\[0\]\.rateShare of a JSON result is NaN/,
    );
    expect(() => toJson(Infinity)).toThrow(DualPathError);
  });
});

describe('errors', () => {
  it('have exit code 2 where the command line or its input is at fault', () => {
    const input = (Object.keys(errorCodes) as ErrorCode[]).filter(
      (code) => exitCodeOf(new DualPathError(code, '')) === 2,
    );
    expect(input).toEqual([
      'INVALID_ARGUMENT',
      'INVALID_MODEL',
      'INVALID_TRACE',
      'STORE_MISMATCH',
      'REQUEST_TOO_LARGE',
    ]);
    expect(exitCodeOf(new DualPathError('STORAGE_IO', ''))).toBe(1);
    expect(exitCodeOf(new TypeError('x'))).toBe(1);
  });

  it('are a document and a text, with a stack for faults of the program only', () => {
    const error = new DualPathError('NO_SPACE', 'full', { limit_bytes: 5n });
    expect(errorDocument(error)).toEqual({
      error: { code: 'NO_SPACE', message: 'full', details: { limit_bytes: 5n } },
    });
    expect(errorText(error)).toBe('error: full (NO_SPACE)\n');
    expect(errorDocument(new TypeError('oops'))).toEqual({
      error: { code: 'INTERNAL', message: 'oops', details: {} },
    });
    expect(errorText(new TypeError('oops'))).toMatch(/please report it\nTypeError: oops\n +at /);
  });
});
