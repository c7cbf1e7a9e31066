import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { keptTokensOf, loadWorkload, type Session } from '../../src/trace/index.js';
import { readDualPath } from '../../src/trace/dualpath.js';
import { scaleSession } from '../../src/trace/scale.js';
import { agentSample, conversationSample, fixed, rawSession, rawSessions, sessionOf } from './support.js';

const ownSessions = fc
  .array(
    fc.record({
      append: fc.integer({ min: 1, max: 40 }),
      output: fc.nat(20),
      percent: fc.nat(100),
    }),
    { minLength: 1, maxLength: 6 },
  )
  .map((turns) => {
    let conversation = 0;
    const list = turns.map(({ append, output, percent }, index) => {
      const kept = Math.round((conversation * percent) / 100);
      conversation = kept + append + output;
      return index === 0 ? { append, output } : { append, output, keep: kept };
    });
    const line = { format: 'dualpath', version: 1, id: 'own', turns: list };
    return readDualPath(line, { path: 'test', line: 1 }).session;
  });
const sessions = fc.oneof(
  rawSessions.map((list) => list.map(sessionOf)),
  ownSessions.map((session) => [session]),
);
const factors = fc.oneof(
  fc.integer({ min: 1, max: 4000 }).map((n) => n / 1000),
  fc.constantFrom(1 / 64, 0.5, 1, 3),
);

function prefixTokens(session: Session): number {
  return session.prefix.reduce((sum, { tokens }) => sum + tokens, 0);
}

/** Everything that says how a turn relates to the one before it. */
function checkRelations(original: Session, scaled: Session): void {
  for (const [index, turn] of scaled.turns.entries()) {
    const was = original.turns[index];
    const [before, wasBefore] = [scaled.turns[index - 1], original.turns[index - 1]];
    if (was === undefined) throw new Error('a turn was added');
    const [kept, wasKept] = [keptTokensOf(turn), keptTokensOf(was)];
    expect(turn.promptTokens).toBeGreaterThanOrEqual(1);
    expect(turn.outputTokens > 0).toBe(was.outputTokens > 0);
    expect(turn.promptTokens - kept > 0).toBe(was.promptTokens - wasKept > 0);
    if (turn.traceHitTokens !== null && was.traceHitTokens !== null) {
      expect(turn.traceHitTokens).toBeLessThanOrEqual(turn.promptTokens);
      if (was.traceHitTokens <= wasKept) expect(turn.traceHitTokens).toBeLessThanOrEqual(kept);
    }
    if (before === undefined || wasBefore === undefined) continue;
    const all = before.promptTokens + before.outputTokens;
    expect(kept).toBeLessThanOrEqual(all);
    if (wasKept === wasBefore.promptTokens + wasBefore.outputTokens) expect(kept).toBe(all);
    if (wasKept === wasBefore.promptTokens) expect(kept).toBe(before.promptTokens);
    if (wasKept > wasBefore.promptTokens) expect(kept).toBeGreaterThanOrEqual(before.promptTokens);
    if (wasKept < wasBefore.promptTokens) expect(kept).toBeLessThanOrEqual(before.promptTokens);
    if (was.promptTokens < wasBefore.promptTokens)
      expect(turn.promptTokens).toBeLessThanOrEqual(before.promptTokens);
    else expect(turn.promptTokens).toBeGreaterThanOrEqual(before.promptTokens);
  }
}

describe('scaleSession', () => {
  it('keeps the relations between turns, whatever the factor', () => {
    fc.assert(
      fc.property(sessions, factors, (list, factor) => {
        for (const session of list) {
          const scaled = scaleSession(session, factor);
          expect(scaled.turns).toHaveLength(session.turns.length);
          checkRelations(session, scaled);
          for (const { tokens } of scaled.prefix) expect(tokens).toBeGreaterThanOrEqual(1);
          const [own, was] = [prefixTokens(scaled), prefixTokens(session)];
          const first = scaled.turns[0]?.promptTokens ?? 0;
          expect(own).toBeLessThanOrEqual(first);
          if (was < (session.turns[0]?.promptTokens ?? 0)) expect(own).toBeLessThan(first);
        }
      }),
      fixed,
    );
  });

  it('is the identity at 1', () => {
    fc.assert(
      fc.property(sessions, (list) => {
        for (const session of list) expect(scaleSession(session, 1)).toEqual(session);
      }),
      fixed,
    );
  });

  it('multiplies all lengths exactly by a whole factor', () => {
    fc.assert(
      fc.property(rawSessions, (list) => {
        for (const raw of list) {
          const times3 = {
            ...raw,
            turns: raw.turns.map((turn) => ({
              ...turn,
              in: turn.in * 3,
              out: turn.out * 3,
              hit: (turn.hit ?? 0) * 3,
            })),
          };
          expect(scaleSession(sessionOf(raw), 3).turns).toEqual(sessionOf(times3).turns);
        }
      }),
      fixed,
    );
  });

  it('rounds each length by itself on a real trace', async () => {
    const { sessions: real } = await loadWorkload(agentSample);
    for (const session of real) {
      const scaled = scaleSession(session, 1 / 16);
      for (const [index, { promptTokens }] of session.turns.entries()) {
        const off = (scaled.turns[index]?.promptTokens ?? 0) - promptTokens / 16;
        expect(Math.abs(off)).toBeLessThan(3);
      }
    }
  });

  it('scales hashed blocks with their requests', async () => {
    const { sessions: real } = await loadWorkload(conversationSample);
    for (const session of real) {
      const [was, turn] = [session.turns[0], scaleSession(session, 1 / 100).turns[0]];
      if (was?.identity.kind !== 'blocks' || turn?.identity.kind !== 'blocks') throw new Error('not hashed');
      expect(turn.identity).toEqual({ ...was.identity, blockTokens: 5 });
      expect(Math.ceil(turn.promptTokens / 5)).toBe(was.identity.hashIds.length);
      expect(Math.floor(turn.promptTokens / 5)).toBeGreaterThanOrEqual(Math.floor(was.promptTokens / 512));
    }
  });

  it('refuses a factor that makes a turn too long', () => {
    expect(() => scaleSession(sessionOf(rawSession('x', [{ in: 2 ** 30, out: 1 }])), 2)).toThrow(
      /over the limit/,
    );
  });
});
