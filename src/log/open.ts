import { openSync } from 'node:fs';
import { hostname } from 'node:os';
import { destination, pino, stdTimeFunctions, type DestinationStream } from 'pino';
import { DualPathError } from '../errors/index.js';
import type { Log } from './fields.js';

/** What each level says; the table is the documentation. */
export const logLevels = {
  error: 'the process cannot go on',
  warn: 'a request failed, was refused or is tried again; an engine or a replica was lost',
  info: 'besides, each request when it gets its engines and when it ends; what came and went',
  debug: 'besides, each step of a request',
} as const;

export type LogLevel = keyof typeof logLevels;

export interface LogOptions {
  readonly level: LogLevel;
  /** Appended to; left out: `stream`. */
  readonly file?: string;
  readonly stream: DestinationStream;
  /** In every line, after the process and its host. */
  readonly fields?: object;
}

export interface LogFile {
  readonly log: Log;
  /** A line whatever the level is: what a process says of itself once. */
  readonly note: (message: string) => void;
  /** Passes on a line of another process's log; what is none is left out. */
  readonly forward: (line: string) => void;
}

/**
 * Opens a log. Lines are written when they are made, one system call each, so that none is lost with the process; a file may be
 * moved away and is then copied and truncated, not renamed.
 *
 * @throws INVALID_ARGUMENT for a file that cannot be opened
 */
export function openLog({ level, file, stream, fields = {} }: LogOptions): LogFile {
  const target = file === undefined ? stream : fileTarget(file);
  const log = pino(
    {
      level,
      base: { pid: process.pid, host: hostname(), ...fields },
      timestamp: stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
    },
    target,
  );
  const notes = log.child({}, { level: 'info' });
  return {
    log,
    note: (message) => notes.info(message),
    forward: (line) => {
      if (line.startsWith('{')) target.write(`${line}\n`);
    },
  };
}

function fileTarget(file: string): DestinationStream {
  let fd: number;
  try {
    fd = openSync(file, 'a');
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `the log cannot be opened: ${why}`,
      { path: file },
      { cause },
    );
  }
  const target = destination({ fd, sync: true });
  // A full disk costs lines, not requests.
  target.on('error', () => undefined);
  return target;
}
