import { DualPathError } from '../errors/index.js';
import type { ReadLinesOptions } from './lines.js';
import { readTrace } from './reader.js';
import { scaleSession } from './scale.js';
import { selectSessions } from './select.js';
import { traceLimits, type Session, type TraceClock, type TraceFormat, type Turn } from './types.js';

export interface WorkloadOptions extends ReadLinesOptions {
  /** Default: told from the first line. */
  readonly format?: TraceFormat | undefined;
  /** Sessions to choose, by a hash of seed and id; default all. */
  readonly sessions?: number | undefined;
  /** Leaves out sessions that have fewer turns within `maxContextTokens`; default 1. */
  readonly minTurns?: number | undefined;
  /** Turns to keep of each session, the first ones; default all. */
  readonly turns?: number | undefined;
  /**
   * A session ends before the first turn whose prompt and output together go beyond this (the paper's MaxLen,
   * section 7), in the trace's own lengths, that is, before scaling; default no limit.
   */
  readonly maxContextTokens?: number | undefined;
  /** Factor on all lengths, above 0 and at most 1024; default 1. */
  readonly scale?: number | undefined;
  /** Seed of both the selection and the tokens, a whole number; default 0. */
  readonly seed?: number | undefined;
  /** Keeps the sessions that the trace itself marks as copies of others; default false. */
  readonly includeDuplicates?: boolean | undefined;
}

/** What loadWorkload did not take over, each session or turn counted under its first reason. */
export interface LeftOut {
  readonly duplicateSessions: number;
  /** No turn lies within maxContextTokens. */
  readonly oversizedSessions: number;
  /** Fewer than minTurns turns. */
  readonly shortSessions: number;
  /** Not among the chosen number of sessions. */
  readonly unselectedSessions: number;
  /** Turns of kept sessions from the first beyond maxContextTokens on. */
  readonly turnsPastContext: number;
  /** Turns of kept sessions after the first `turns`. */
  readonly turnsPastCap: number;
}

export interface Workload {
  readonly path: string;
  readonly format: TraceFormat;
  readonly clock: TraceClock;
  readonly seed: number;
  readonly scale: number;
  /**
   * By arrival where the trace has one clock; otherwise in file order or, when a number of them was chosen,
   * in the order of the hash that chose them.
   */
  readonly sessions: readonly Session[];
  /** Sessions and turns read from the file, before anything was left out. */
  readonly read: { readonly sessions: number; readonly turns: number };
  readonly leftOut: LeftOut;
}

interface Candidate {
  readonly id: string;
  readonly session: Session;
  readonly pastContext: number;
  readonly pastCap: number;
}

/**
 * Reads a trace and takes from it the workload the options describe: duplicates out, sessions cut at
 * `maxContextTokens`, short ones out, `sessions` of the rest chosen, `turns` of each kept, lengths scaled, in
 * this order. Throws INVALID_TRACE, INVALID_ARGUMENT or CANCELLED.
 */
export async function loadWorkload(path: string, options: WorkloadOptions = {}): Promise<Workload> {
  const { seed, scale, minTurns } = checkOptions(options);
  const read = { sessions: 0, turns: 0 };
  const leftOut = { duplicateSessions: 0, oversizedSessions: 0, shortSessions: 0 };
  let format: TraceFormat | undefined;

  async function* candidates(): AsyncGenerator<Candidate> {
    for await (const entry of readTrace(path, options)) {
      format = entry.format;
      read.sessions++;
      read.turns += entry.session.turns.length;
      const candidate = cut(entry.session, options);
      if (entry.duplicateOf !== null && options.includeDuplicates !== true) leftOut.duplicateSessions++;
      else if (candidate === null) leftOut.oversizedSessions++;
      else if (entry.session.turns.length - candidate.pastContext < minTurns) leftOut.shortSessions++;
      else yield candidate;
    }
  }

  const chosen =
    options.sessions === undefined
      ? await takeAll(candidates(), path)
      : await selectSessions(candidates(), { count: options.sessions, seed });
  const skipped = leftOut.duplicateSessions + leftOut.oversizedSessions + leftOut.shortSessions;
  if (chosen.length === 0 || format === undefined) throw nothingLeft(path, leftOut);
  const sessions = chosen.map(({ session }) => scaleSession(session, scale));
  const clock = clockOf(format, sessions);
  if (clock === 'trace') sessions.sort((a, b) => arrivalOf(a) - arrivalOf(b));
  return {
    path,
    format,
    clock,
    seed,
    scale,
    sessions,
    read,
    leftOut: {
      ...leftOut,
      unselectedSessions: read.sessions - skipped - chosen.length,
      turnsPastContext: chosen.reduce((sum, candidate) => sum + candidate.pastContext, 0),
      turnsPastCap: chosen.reduce((sum, candidate) => sum + candidate.pastCap, 0),
    },
  };
}

function checkOptions(options: WorkloadOptions): { seed: number; scale: number; minTurns: number } {
  const { seed = 0, scale = 1, minTurns = 1 } = options;
  checkWhole('sessions', options.sessions ?? 1, 1, traceLimits.sessions);
  checkWhole('turns', options.turns ?? 1, 1, traceLimits.turnsPerSession);
  checkWhole('minTurns', minTurns, 1, traceLimits.turnsPerSession);
  checkWhole('maxContextTokens', options.maxContextTokens ?? 1, 1, traceLimits.tokens);
  checkWhole('seed', seed, 0, Number.MAX_SAFE_INTEGER);
  if (!(scale > 0 && scale <= 1024)) {
    throw new DualPathError('INVALID_ARGUMENT', `scale must be above 0 and at most 1024, not ${scale}`, {
      scale: String(scale),
    });
  }
  return { seed, scale, minTurns };
}

function checkWhole(name: string, value: number, least: number, most: number): void {
  if (Number.isSafeInteger(value) && value >= least && value <= most) return;
  throw new DualPathError(
    'INVALID_ARGUMENT',
    `${name} must be a whole number from ${least} to ${most}, not ${value}`,
    { option: name, value: String(value) },
  );
}

/** The session up to its context and turn limits; null where nothing of it remains. */
function cut(session: Session, options: WorkloadOptions): Candidate | null {
  const { maxContextTokens = Infinity, turns: cap = Infinity } = options;
  const beyond = session.turns.findIndex((turn) => turn.promptTokens + turn.outputTokens > maxContextTokens);
  const within = beyond < 0 ? session.turns.length : beyond;
  if (within === 0) return null;
  const kept = Math.min(within, cap);
  return {
    id: session.id,
    session: kept === session.turns.length ? session : { ...session, turns: session.turns.slice(0, kept) },
    pastContext: session.turns.length - within,
    pastCap: within - kept,
  };
}

async function takeAll(candidates: AsyncIterable<Candidate>, path: string): Promise<Candidate[]> {
  const all: Candidate[] = [];
  let turns = 0;
  for await (const candidate of candidates) {
    all.push(candidate);
    turns += candidate.session.turns.length;
    if (turns > traceLimits.turns) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `${path} has more than the ${traceLimits.turns} turns that are held at once: choose fewer sessions or turns`,
        { path, limit_turns: traceLimits.turns },
      );
    }
  }
  return all;
}

function clockOf(format: TraceFormat, sessions: readonly Session[]): TraceClock {
  if (format === 'claude-code') return 'session';
  return sessions.every(({ turns }) => firstTurn(turns).arrivalMs !== null) ? 'trace' : 'none';
}

function arrivalOf(session: Session): number {
  return firstTurn(session.turns).arrivalMs ?? 0;
}

function firstTurn(turns: readonly Turn[]): Turn {
  const turn = turns[0];
  if (turn === undefined) throw new DualPathError('INTERNAL', 'a session without turns was let through');
  return turn;
}

function nothingLeft(path: string, leftOut: Record<string, number>): DualPathError {
  const {
    duplicateSessions: duplicates = 0,
    oversizedSessions: oversized = 0,
    shortSessions: short = 0,
  } = leftOut;
  return new DualPathError(
    'INVALID_ARGUMENT',
    `no session of ${path} is left: ${duplicates} are duplicates, ${oversized} go beyond the context limit with ` +
      `their first turn, ${short} have too few turns: relax these limits`,
    { path, duplicate_sessions: duplicates, oversized_sessions: oversized, short_sessions: short },
  );
}
