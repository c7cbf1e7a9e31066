import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll } from 'vitest';
import { readClaudeCode } from '../../src/trace/claude-code.js';
import type { Session, Workload } from '../../src/trace/index.js';

export const agentSample = 'examples/traces/agent-sessions-sample.jsonl';
export const conversationSample = 'examples/traces/conversation-sample.jsonl';

/** Property tests draw the same cases every time. */
export const fixed = { seed: 20260228, numRuns: 100 } as const;

/** A writer of files in a directory that goes away with the test file. */
export function temporaryFiles(): (name: string, content: string | Buffer) => string {
  const directory = mkdtempSync(join(tmpdir(), 'dualpath-trace-'));
  afterAll(() => rmSync(directory, { recursive: true }));
  return (name, content) => {
    const path = join(directory, name);
    writeFileSync(path, content);
    return path;
  };
}

export interface RawTurn {
  t: number;
  in: number;
  out: number;
  hit: number | null;
  think: number | null;
}

export interface RawSession {
  id: string;
  dup_of: string | null;
  tool_tokens: number;
  system_tokens: number;
  turns: RawTurn[];
}

export function rawSession(
  id: string,
  turns: Partial<RawTurn>[],
  fields: Partial<RawSession> = {},
): RawSession {
  const full = turns.map((turn, t) => ({ t, in: 10, out: 5, hit: 0, think: null, ...turn }));
  return { id, dup_of: null, tool_tokens: 0, system_tokens: 0, turns: full, ...fields };
}

const rawTurn = fc
  .record({
    in: fc.integer({ min: 1, max: 60 }),
    out: fc.nat(20),
    // Not fc.double, which draws exponents evenly and so hardly ever a share that rounds above 0.
    percent: fc.nat(100),
  })
  .map(({ in: prompt, out, percent }) => ({ in: prompt, out, hit: Math.floor((prompt * percent) / 100) }));

/** Small sessions that grow, shrink and share prefixes. */
export const rawSessions: fc.Arbitrary<RawSession[]> = fc
  .array(
    fc.record({
      tools: fc.constantFrom(0, 3, 8),
      system: fc.constantFrom(0, 4, 9),
      turns: fc.array(rawTurn, { minLength: 1, maxLength: 6 }),
    }),
    { minLength: 1, maxLength: 5 },
  )
  .map((sessions) =>
    sessions.map(({ tools, system, turns }, index) =>
      rawSession(`s${index}`, turns, { tool_tokens: tools, system_tokens: system }),
    ),
  );

export function sessionOf(raw: RawSession): Session {
  return readClaudeCode(raw, { path: 'test', line: 1 }).session;
}

export function workloadOf(sessions: readonly Session[], fields: Partial<Workload> = {}): Workload {
  const leftOut = {
    duplicateSessions: 0,
    oversizedSessions: 0,
    shortSessions: 0,
    unselectedSessions: 0,
    turnsPastContext: 0,
    turnsPastCap: 0,
  };
  const read = { sessions: sessions.length, turns: 0 };
  return {
    path: 'test',
    format: 'claude-code',
    clock: 'session',
    seed: 1,
    scale: 1,
    sessions,
    read,
    leftOut,
    ...fields,
  };
}

/**
 * The identity rule written down a second time, from docs/traces.md: each token as a name; equal names must be
 * equal tokens. One [prompt, reply] for each turn.
 */
export function namedTokens(raw: RawSession): [string[], string[]][] {
  let fresh = 0;
  const make = (count: number): string[] => Array.from({ length: count }, () => `${raw.id}#${fresh++}`);
  const shared = [
    ...Array.from({ length: raw.tool_tokens }, (_, i) => `tools ${raw.tool_tokens}@${i}`),
    ...Array.from(
      { length: raw.system_tokens },
      (_, i) => `both ${raw.tool_tokens} ${raw.system_tokens}@${i}`,
    ),
  ];
  const turns: [string[], string[]][] = [];
  for (const [index, turn] of raw.turns.entries()) {
    let kept: string[];
    const [prompt, reply] = turns[index - 1] ?? [[], []];
    if (index === 0) kept = shared.slice(0, turn.in);
    else if (turn.in >= prompt.length + reply.length) kept = [...prompt, ...reply];
    else if (turn.in >= prompt.length) kept = prompt;
    else kept = prompt.slice(0, turn.hit ?? 0);
    const whole = [...kept, ...make(turn.in - kept.length)];
    turns.push([whole, make(turn.out)]);
  }
  return turns;
}
