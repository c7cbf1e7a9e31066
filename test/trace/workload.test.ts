import { gzipSync } from 'node:zlib';
import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { loadWorkload, type WorkloadOptions } from '../../src/trace/index.js';
import {
  agentSample,
  conversationSample,
  fixed,
  rawSession,
  rawSessions,
  temporaryFiles,
} from './support.js';

const write = temporaryFiles();
const lines = (list: readonly unknown[]): string => list.map((line) => `${JSON.stringify(line)}\n`).join('');

describe('loadWorkload', () => {
  it('counts what it leaves out, each under its first reason', async () => {
    const path = write(
      'mixed.jsonl',
      lines([
        rawSession('long', [{ in: 10 }, { in: 20 }, { in: 30 }, { in: 90 }, { in: 20 }]),
        rawSession('copy', [{ in: 10 }], { dup_of: 'long' }),
        rawSession('large', [{ in: 50 }, { in: 10 }]),
        rawSession('short', [{ in: 10 }, { in: 90 }]),
        rawSession('other', [{ in: 10 }, { in: 20 }]),
        rawSession('third', [{ in: 44 }, { in: 45 }]),
      ]),
    );
    const options = { maxContextTokens: 50, minTurns: 2, sessions: 2, turns: 2, seed: 4 };
    const workload = await loadWorkload(path, options);
    expect(workload.read).toEqual({ sessions: 6, turns: 14 });
    expect(workload.leftOut).toMatchObject({
      duplicateSessions: 1,
      oversizedSessions: 1,
      shortSessions: 1,
      unselectedSessions: 1,
    });
    const all = await loadWorkload(path, { ...options, sessions: 3 });
    expect(all.sessions.map(({ id }) => id).sort()).toEqual(['long', 'other', 'third']);
    expect(all.leftOut).toMatchObject({ unselectedSessions: 0, turnsPastContext: 2, turnsPastCap: 1 });
    expect(workload.sessions).toEqual(all.sessions.slice(0, 2));
    expect((await loadWorkload(path, { includeDuplicates: true })).sessions).toHaveLength(6);
  });

  it('takes over everything by default', async () => {
    await fc.assert(
      fc.asyncProperty(rawSessions, async (list) => {
        const { sessions, leftOut, clock } = await loadWorkload(write('all.jsonl', lines(list)));
        expect(sessions.map(({ id, turns }) => [id, turns.length])).toEqual(
          list.map((raw) => [raw.id, raw.turns.length]),
        );
        expect(Object.values(leftOut)).toEqual([0, 0, 0, 0, 0, 0]);
        expect(clock).toBe('session');
      }),
      { ...fixed, numRuns: 20 },
    );
  });

  it('reads the samples, compressed or not', async () => {
    const agents = await loadWorkload(agentSample);
    expect(agents).toMatchObject({
      format: 'claude-code',
      clock: 'session',
      read: { sessions: 20, turns: 708 },
    });
    const packed = await loadWorkload(write('packed', gzipSync(readFileSync(agentSample))));
    expect(packed.sessions).toEqual(agents.sessions);
    const requests = await loadWorkload(conversationSample);
    expect(requests).toMatchObject({
      format: 'mooncake',
      clock: 'trace',
      read: { sessions: 200, turns: 200 },
    });
  });

  it('orders sessions by arrival on a common clock, also chosen ones', async () => {
    const { sessions } = await loadWorkload(conversationSample, { sessions: 50, seed: 9 });
    const arrivals = sessions.map(({ turns }) => turns[0]?.arrivalMs ?? NaN);
    expect(arrivals).toHaveLength(50);
    expect(arrivals).toEqual([...arrivals].sort((a, b) => a - b));
    const own = (id: string, turn: object): object => ({ format: 'dualpath', version: 1, id, turns: [turn] });
    const late = own('late', { append: 1, output: 1, arrival_ms: 8 });
    const early = own('early', { append: 1, output: 1, arrival_ms: 2 });
    const timeless = own('timeless', { append: 1, output: 1 });
    const timed = await loadWorkload(write('timed', lines([late, early])));
    expect([timed.clock, timed.sessions.map(({ id }) => id)]).toEqual(['trace', ['early', 'late']]);
    const untimed = await loadWorkload(write('untimed', lines([late, early, timeless])));
    expect([untimed.clock, untimed.sessions.map(({ id }) => id)]).toEqual([
      'none',
      ['late', 'early', 'timeless'],
    ]);
  });

  it('says why nothing is left', async () => {
    await expect(loadWorkload(agentSample, { maxContextTokens: 100 })).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: expect.stringContaining('20 go beyond the context limit') as string,
    });
  });

  it('refuses options out of range', async () => {
    const wrong: WorkloadOptions[] = [
      { sessions: 0 },
      { turns: 1.5 },
      { minTurns: 0 },
      { maxContextTokens: 2 ** 31 + 1 },
      { seed: -1 },
      { scale: 0 },
      { scale: NaN },
      { scale: 1025 },
    ];
    for (const options of wrong) {
      await expect(loadWorkload(agentSample, options)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' });
    }
  });
});
