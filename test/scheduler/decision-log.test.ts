import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { DualPathError } from '../../src/errors/index.js';
import {
  Admission,
  DecisionLog,
  readPolicies,
  type Assignment,
  type Decision,
  type ReadPolicy,
} from '../../src/scheduler/index.js';
import { admitAll, engineOf, optionsOf, requestOf } from './support.js';

const engines = [
  engineOf('prefill', 'p0', { group: 'pg' }),
  engineOf('prefill', 'p1', { group: 'pg', bufferBlocks: 4 }),
  engineOf('decode', 'd0', { group: 'dg0' }),
  engineOf('decode', 'd1', { group: 'dg1', hbmBlocks: 12 }),
  engineOf('decode', 'd2', { group: 'dg1' }),
];

function kindsOf(log: DecisionLog, request: string): string[] {
  return log.find(request)!.decisions.map(({ kind }) => kind);
}

function only<K extends Decision['kind']>(
  log: DecisionLog,
  request: string,
  kind: K,
): Extract<Decision, { kind: K }> {
  const found = log.find(request)!.decisions.filter((one) => one.kind === kind);
  expect(found).toHaveLength(1);
  return found[0] as unknown as Extract<Decision, { kind: K }>;
}

describe('what is kept of a request', () => {
  it('is each decision, in order', () => {
    const decisions = new DecisionLog({ now: () => 7 });
    const admission = new Admission(optionsOf({ decisions }));
    admitAll(admission, requestOf('a', 6, 4));
    admission.complete('a', 'request');
    expect(kindsOf(decisions, 'a')).toEqual([
      ...['submit', 'prefill', 'decode-group', 'decode', 'read', 'assigned', 'end'],
    ]);
    expect(decisions.find('a')!.decisions[0]).toMatchObject({ atS: 7, promptTokens: 24, ahead: 0 });
    expect(only(decisions, 'a', 'end').error).toBeNull();
    expect(decisions.find('nobody')).toBeUndefined();
  });

  it('names the classes and why a request waits, one entry however often it was looked at', () => {
    const decisions = new DecisionLog();
    const admission = new Admission(optionsOf({ decisions, betaTokens: 10 }));
    admitAll(admission, requestOf('a', 6, 0), requestOf('b', 6, 0));
    admission.fetch('prefill-group', []);
    admission.fetch('prefill-group', []);
    const wait = only(decisions, 'b', 'wait');
    expect(wait).toMatchObject({
      cause: 'prefill-room',
      times: 3,
      last: { classes: { c1: 1, c2: 0, c3: 0 } },
    });
    admission.end('b', new DualPathError('CANCELLED', 'enough'));
    expect(only(decisions, 'b', 'end').error).toEqual({ code: 'CANCELLED', message: 'enough' });
  });

  it('says why a side reads', () => {
    const reasonOf = (policy: ReadPolicy, promptBlocks: number, hitBlocks: number): string => {
      const decisions = new DecisionLog();
      admitAll(new Admission(optionsOf({ policy, decisions })), requestOf('a', promptBlocks, hitBlocks));
      return only(decisions, 'a', 'read').reason;
    };
    expect(reasonOf('shorter-queue', 6, 0)).toBe('nothing-to-read');
    expect(reasonOf('shorter-queue', 6, 4)).toBe('tie');
    expect(reasonOf('split', 6, 4)).toBe('balance');
    expect(reasonOf('prefill', 6, 4)).toBe('policy');
    expect(reasonOf('round-robin', 6, 4)).toBe('turn');
    const decisions = new DecisionLog();
    const admission = new Admission(optionsOf({ decisions }));
    admitAll(admission, requestOf('a', 6, 4));
    admitAll(admission, { ...requestOf('b', 2, 1), avoidSide: 'prefill' });
    expect(only(decisions, 'b', 'read')).toMatchObject({ reason: 'other-side-failed', side: 'decode' });
  });

  it('is bounded in requests and in decisions of one', () => {
    const ended: string[] = [];
    const decisions = new DecisionLog({ maxRequests: 3, onEnd: ({ request }) => ended.push(request) });
    const admission = new Admission(optionsOf({ decisions }));
    for (let i = 0; i < 10; i++) {
      admitAll(admission, requestOf(`r${i}`, 2, 0));
      admission.complete(`r${i}`, 'request');
    }
    expect(decisions.size).toBe(3);
    expect(decisions.find('r6')).toBeUndefined();
    expect(ended).toHaveLength(10);
    for (let i = 0; i < 20; i++) {
      admitAll(admission, requestOf('again', 2, 0));
      admission.complete('again', 'request');
    }
    const { decisions: kept, dropped } = decisions.find('again')!;
    expect(kept.length + dropped).toBe(20 * 7);
    expect(kept.length).toBeLessThanOrEqual(48);
  });
});

describe('explaining changes nothing, and says what was done', () => {
  const request = fc.record({
    promptBlocks: fc.integer({ min: 1, max: 8 }),
    hits: fc.integer({ min: 0, max: 8 }),
    ends: fc.boolean(),
  });

  it('for any load and policy', () => {
    const policies = Object.keys(readPolicies) as ReadPolicy[];
    fc.assert(
      fc.property(fc.constantFrom(...policies), fc.array(request, { maxLength: 30 }), (policy, requests) => {
        const run = (decisions: DecisionLog | undefined): Assignment[] => {
          const admission = new Admission(
            optionsOf({ engines, policy, betaTokens: 60, alphaS: 0.2, decisions }),
          );
          const all: Assignment[] = [];
          requests.forEach(({ promptBlocks, hits, ends }, i) => {
            const made = admitAll(admission, requestOf(`r${i}`, promptBlocks, Math.min(hits, promptBlocks)));
            all.push(...made);
            if (ends && all.length > 0) admission.complete(all[all.length >> 1]!.request, 'request');
          });
          return all;
        };
        const log = new DecisionLog();
        const explained = run(log);
        expect(explained).toEqual(run(undefined));
        for (const assignment of explained) checkExplanation(log, assignment);
      }),
      { numRuns: 60 },
    );
  });
});

function checkExplanation(log: DecisionLog, assignment: Assignment): void {
  const { request, prefillEngine, decodeEngine, side } = assignment;
  const prefill = only(log, request, 'prefill');
  expect(prefill.engine).toBe(prefillEngine);
  const { c1, c2, c3, lost } = prefill.classes;
  expect(c1 + c2 + c3 + lost).toBe(2);
  // Algorithm 1 over the candidates as they are told: the first of C2 that fits, else of C3.
  const order = [...prefill.candidates].sort((a, b) => a.class.localeCompare(b.class) || a.tokens - b.tokens);
  const best = order.find(({ fits }) => fits)!;
  const chosen = prefill.candidates.find(({ engine }) => engine === prefillEngine)!;
  expect([chosen.class, chosen.tokens]).toEqual([best.class, best.tokens]);

  const group = only(log, request, 'decode-group');
  const least = Math.min(...group.candidates.map(({ tokens }) => tokens));
  expect(group.candidates.find((one) => one.group === group.group)!.tokens).toBe(least);

  const decode = only(log, request, 'decode');
  expect(decode).toMatchObject({ engine: decodeEngine, group: group.group });
  const taken = decode.candidates.find(({ engine }) => engine === decodeEngine)!;
  expect(taken.fits).toBe(true);
  expect(taken.withinZ).toBe(decode.rule === 'fewest-requests-within-z');

  const read = only(log, request, 'read');
  expect(read).toMatchObject({ side, hitBlocks: read.prefillReadBlocks + read.decodeReadBlocks });
  if (read.reason === 'shorter-queue') {
    const faster = read.prefill.finishS < read.decode.finishS ? 'prefill' : 'decode';
    expect(side).toBe(faster);
  }
  expect(only(log, request, 'assigned').assignment).toEqual(assignment);
}
