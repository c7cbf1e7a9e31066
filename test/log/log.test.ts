/** Lines of the log: what they say at which level, and where they go. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { DualPathError } from '../../src/errors/index.js';
import type { LeaseEvent } from '../../src/leases/index.js';
import { errorFields, isRequestId, leaseLog, logLevels, openLog, traceIdOf } from '../../src/log/index.js';
import type { Assignment } from '../../src/scheduler/index.js';
import { memoryStream } from './support.js';

describe('a log', () => {
  it('has a document a line, with its level by name, the time, the process', () => {
    const { stream, lines } = memoryStream();
    const { log, note, forward } = openLog({ level: 'warn', stream, fields: { service: 'x' } });
    log.info({ request_id: 'a' }, 'not at this level');
    log.warn({ request_id: 'b', engine: 'line\nbreak' }, 'request failed');
    note('listening');
    forward('{"msg":"of another process"}');
    forward('some warning');
    expect(lines()).toEqual([
      {
        ...{ level: 'warn', service: 'x', request_id: 'b', engine: 'line\nbreak', msg: 'request failed' },
        ...{ pid: process.pid, host: hostname() },
        time: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/) as string,
      },
      expect.objectContaining({ level: 'info', msg: 'listening', service: 'x' }),
      { msg: 'of another process' },
    ]);
  });

  it('is appended to a file; one that cannot be opened is said', () => {
    const folder = mkdtempSync(join(tmpdir(), 'dualpath-log-'));
    const file = join(folder, 'log');
    const { stream } = memoryStream();
    for (const message of ['first', 'second']) openLog({ level: 'info', file, stream }).log.info({}, message);
    expect(readFileSync(file, 'utf8').match(/first|second/g)).toEqual(['first', 'second']);
    expect(() => openLog({ level: 'info', file: folder, stream })).toThrow(/EISDIR.*dualpath-log-/);
    rmSync(folder, { recursive: true });
  });

  it('goes on when its disk is full', () => {
    const { log } = openLog({ level: 'info', file: '/dev/full', stream: memoryStream().stream });
    for (let i = 0; i < 10; i++) log.info({ i }, 'lost');
  });
});

describe('fields', () => {
  it('of errors have code, message and details; a stack where the fault is the program’s', () => {
    const error = new DualPathError('NO_SPACE', 'full', { bytes: 5n, path: '/kv' });
    expect(errorFields(error)).toEqual({
      error: { code: 'NO_SPACE', message: 'full', details: { bytes: '5', path: '/kv' } },
    });
    expect(errorFields(new TypeError('x'))).toMatchObject({
      error: { code: 'INTERNAL', message: 'x', stack: expect.stringContaining('log.test') as string },
    });
    expect(errorFields('thrown')).toEqual({ error: { code: 'INTERNAL', message: 'thrown' } });
  });

  it('take no ids that could harm a reader, and only whole trace contexts', () => {
    expect(['a', 'client/key', '!~'].filter(isRequestId)).toHaveLength(3);
    expect(['', 'a b', 'ä', 'x\n', 'x'.repeat(129), ['a'], undefined].filter(isRequestId)).toEqual([]);
    const trace = '4bf92f3577b34da6a3ce929d0e0e4736';
    expect(traceIdOf(`00-${trace}-00f067aa0ba902b7-01`)).toBe(trace);
    expect([undefined, '', trace, `00-${trace}`].map(traceIdOf)).toEqual(Array(4).fill(undefined));
  });
});

describe('the log of leases', () => {
  const at = { atS: 1, request: 'front/a' };
  const assignment: Assignment = {
    ...{ request: 'front/a', epoch: 1, admission: 7, prefillEngine: 'p', decodeEngine: 'd' },
    side: 'split',
    ...{ prefillReadBlocks: 2, decodeReadBlocks: 1, promptBlocks: 4 },
    ...{ prefillHbmBlocks: 0, decodeHbmBlocks: 5 },
  };
  const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
  const error = new DualPathError('PEER_LOST', 'gone');
  const events: readonly LeaseEvent[] = [
    { ...at, kind: 'submitted' },
    { ...at, kind: 'queued' },
    { ...at, kind: 'assigned', assignment, attempt: 1, waitedS: 0.25, traceparent },
    { ...at, kind: 'stage', admission: 7, stage: 'prefill' },
    { ...at, kind: 'tokens', admission: 7, first: 0, count: 4 },
    { ...at, kind: 'returned', admission: 7, attempt: 1, error },
    { ...at, kind: 'adopted', assignment },
    { ...at, kind: 'ended', error: undefined, attempts: 1, ranS: 1.5 },
    { ...at, kind: 'ended', error, attempts: 3, ranS: 1.5 },
    { ...at, kind: 'refused', error, retryAfterS: 2 },
    { atS: 1, kind: 'engine', engine: 'p', change: 'joined' },
    { atS: 1, kind: 'engine', engine: 'p', change: 'expired' },
    { atS: 1, kind: 'grace', over: true },
    { atS: 1, kind: 'clock', leapS: 3 },
    { atS: 1, kind: 'dropped', admission: 7, what: 'stage' },
  ];

  it.each([
    ['error', []],
    [
      'warn',
      ['request returned', 'request failed', 'request refused', 'engine expired', 'the clock has leapt'],
    ],
    [
      'info',
      [
        ...['request assigned', 'request returned', 'request ended', 'request failed', 'request refused'],
        ...['engine joined', 'engine expired', 'grace period over', 'the clock has leapt'],
      ],
    ],
    [
      'debug',
      [
        ...['request submitted', 'request queued', 'request assigned', 'stage done', 'request returned'],
        ...['request adopted', 'request ended', 'request failed', 'request refused', 'engine joined'],
        ...['engine expired', 'grace period over', 'the clock has leapt', 'word of an ended lease dropped'],
      ],
    ],
  ] as const)('with level %s says so much', (level, messages) => {
    expect(Object.keys(logLevels)).toContain(level);
    const { stream, lines } = memoryStream();
    const observe = leaseLog(openLog({ level, stream }).log);
    for (const event of events) observe(event);
    expect(messages.length === 0 ? [] : lines().map(({ msg }) => msg)).toEqual(messages);
    if (level !== 'info') return;
    expect(lines()[0]).toMatchObject({
      ...{ request_id: 'front/a', prefill_engine: 'p', decode_engine: 'd', side: 'split', admission: 7 },
      ...{ prefill_read_blocks: 2, decode_read_blocks: 1, waited_ms: 250, attempt: 1 },
      trace_id: '4bf92f3577b34da6a3ce929d0e0e4736',
    });
    expect(lines()[3]).toMatchObject({
      level: 'warn',
      attempts: 3,
      ran_ms: 1500,
      error: { code: 'PEER_LOST' },
    });
  });
});
