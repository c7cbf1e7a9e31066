/**
 * What every trace format is read into. Lengths are in tokens, times in milliseconds. A trace holds lengths
 * only; which tokens are equal is a construction, described here by `prefix` and `identity` and carried out
 * by SessionTokens (docs/traces.md).
 */

export const traceFormats = ['claude-code', 'mooncake', 'dualpath'] as const;
export type TraceFormat = (typeof traceFormats)[number];

/**
 * What `arrivalMs` counts from: the trace's start (`trace`), the session's first turn because the trace does
 * not say when sessions began (`session`), or nothing because arrivals are not recorded throughout (`none`).
 */
export type TraceClock = 'trace' | 'session' | 'none';

export const traceLimits = {
  /** Bytes of one line, decompressed, without its newline. */
  lineBytes: 16 * 1024 * 1024,
  sessions: 1 << 20,
  turnsPerSession: 1 << 16,
  /** Turns kept over all sessions; bounds a workload's memory to about a gigabyte. */
  turns: 1 << 22,
  /** Prompt plus output of a turn, and the distinct tokens of a session. */
  tokens: 2 ** 31,
} as const;

/** A run of tokens at the head of a first prompt, shared by all sessions that have a segment of this name. */
export interface PrefixSegment {
  readonly name: string;
  readonly tokens: number;
}

/** Where a prompt's tokens come from. */
export type TurnIdentity =
  | {
      readonly kind: 'conversation';
      /** Leading tokens taken over from the previous turn's prompt and reply; the rest of the prompt is new. */
      readonly keptTokens: number;
    }
  | {
      readonly kind: 'blocks';
      readonly blockTokens: number;
      /** Block i holds prompt tokens [i * blockTokens, (i + 1) * blockTokens); equal ids have equal tokens. */
      readonly hashIds: readonly number[];
    };

export interface Turn {
  /** Length of the whole prompt, history included; at least 1. */
  readonly promptTokens: number;
  /** Generated tokens; 0 where the trace has a turn without a reply. */
  readonly outputTokens: number;
  /** Prompt tokens the traced system found in its cache; null where not recorded. */
  readonly traceHitTokens: number | null;
  /** On the clock that Workload.clock names; null where not recorded. */
  readonly arrivalMs: number | null;
  /** Pause between the previous reply and this prompt; null where not recorded. */
  readonly thinkMs: number | null;
  readonly identity: TurnIdentity;
}

export interface Session {
  readonly id: string;
  /** Shared segments at the head of the first prompt, in order; together no longer than that prompt. */
  readonly prefix: readonly PrefixSegment[];
  readonly turns: readonly Turn[];
}

/** One line of a trace. */
export interface TraceEntry {
  readonly session: Session;
  /** Id of the session this one repeats, by the trace's own account; null for an original. */
  readonly duplicateOf: string | null;
}

/** Tokens of the previous conversation that the turn's prompt begins with. */
export function keptTokensOf(turn: Turn): number {
  return turn.identity.kind === 'conversation' ? turn.identity.keptTokens : 0;
}
