import { describe, expect, it } from 'vitest';
import { Admission, type EngineLoad } from '../../src/scheduler/index.js';
import { engineOf, expectError, optionsOf, requestOf } from './support.js';

const engines = [
  engineOf('prefill', 'p1', { group: 'pa' }),
  engineOf('prefill', 'p2', { group: 'pb' }),
  engineOf('decode', 'd', { bufferBlocks: 10_000, hbmBlocks: 10_000 }),
];

let sequence = 0;

function load(engine: string, changes: Partial<EngineLoad> = {}): EngineLoad {
  const none = { unfinishedRequests: 0, unfinishedTokens: 0, nodeReadQueueBlocks: 0, lastAdmission: 0 };
  return { engine, sequence: ++sequence, ...none, ...changes };
}

function chosen(admission: Admission, count: number): string[] {
  for (let i = 0; i < count; i++) admission.submit(requestOf(`r${++sequence}`, 1, 0));
  return admission.admit().map(({ prefillEngine }) => prefillEngine);
}

describe('reports of load', () => {
  it('add work that the scheduler did not give', () => {
    const admission = new Admission(optionsOf({ engines }));
    admission.fetch('pa', [load('p1', { unfinishedRequests: 3, unfinishedTokens: 40 })]);
    expect(new Set(chosen(admission, 10))).toEqual(new Set(['p2']));
    expect(admission.engine('p1').unfinishedTokens).toBe(0); // the account is of its own work alone
    admission.fetch('pa', [load('p1')]);
    expect(new Set(chosen(admission, 9))).toEqual(new Set(['p1']));
  });

  it('that are old do not hide what was assigned since: no herd', () => {
    const admission = new Admission(optionsOf({ engines }));
    // p2 is busy; p1 says again and again that it has received nothing and is idle.
    admission.fetch('pb', [load('p2', { unfinishedRequests: 1, unfinishedTokens: 40 })]);
    const all: string[] = [];
    for (let i = 0; i < 30; i++) {
      admission.fetch('pa', [load('p1')]);
      all.push(...chosen(admission, 1));
    }
    // Trusting the newest report alone would send all 30 to p1; 10 requests of 4 tokens make up for p2's 40.
    expect(all.filter((engine) => engine === 'p2')).toHaveLength(10);
  });

  it('count an assignment once, whether it has been received or not, and not after its end', () => {
    const admission = new Admission(optionsOf({ engines: engines.filter(({ engine }) => engine !== 'p2') }));
    admission.fetch('pa', [load('p1')]);
    chosen(admission, 3);
    const [first] = [...['x']];
    admission.submit(requestOf(first!, 1, 1));
    const [assignment] = admission.admit();
    const most = { unfinishedRequests: 4, unfinishedTokens: 16, nodeReadQueueBlocks: 1 };
    admission.fetch('pa', [load('p1', { ...most, lastAdmission: assignment!.admission })]);
    admission.complete('x', 'prefill-read');
    admission.complete('x', 'prefill');
    expect(admission.engine('p1').link.readQueueBlocks).toBe(0);
    expect(admission.engine('p1').unfinishedTokens).toBe(12);
    // Sent before the end was known, received after it: what it counted too much is foreign until the next.
    admission.fetch('pa', [load('p1', { ...most, lastAdmission: assignment!.admission })]);
    expect(admission.engine('p1').link.readQueueBlocks).toBe(1);
    admission.fetch('pa', [load('p1', { lastAdmission: assignment!.admission })]);
    expect(admission.engine('p1').link.readQueueBlocks).toBe(0);
  });

  it('without an admission number are kept and not used', () => {
    const admission = new Admission(optionsOf({ engines }));
    const { lastAdmission, ...report } = load('p1', { unfinishedTokens: 1000 });
    expect(lastAdmission).toBe(0);
    admission.fetch('pa', [report]);
    expect(admission.engine('p1').reported).toEqual(report);
    expect(new Set(chosen(admission, 10)).size).toBe(2);
  });

  it.each([
    ['unfinishedTokens', -1],
    ['unfinishedRequests', Number.NaN],
    ['lastAdmission', 0.5],
    ['nodeReadQueueBlocks', Infinity],
    ['nodeRead', { bytes: Number.NaN, busyS: 1 }],
    ['nodeRead', { bytes: 1, busyS: -1 }],
  ])('that make no sense are refused: %s %s', (name, value) => {
    const admission = new Admission(optionsOf({ engines }));
    const before = JSON.stringify(
      [...admission.engines()].map(({ link, reported }) => [link.readQueueBlocks, reported]),
    );
    expectError(
      () => admission.fetch('pa', [load('p1', { [name]: value })]),
      'INVALID_ARGUMENT',
      new RegExp(name),
    );
    const after = JSON.stringify(
      [...admission.engines()].map(({ link, reported }) => [link.readQueueBlocks, reported]),
    );
    expect(after).toBe(before);
  });
});

describe('measured link rates', () => {
  const split = { policy: 'split', adaptLinkRates: true } as const;
  const wide = [
    engineOf('prefill', 'p', { bufferBlocks: 1000 }),
    engineOf('decode', 'd', { bufferBlocks: 1000 }),
  ];
  const readAt = (admission: Admission, seconds: number, bytesPerS: number): void => {
    for (let i = 0; i < seconds; i++)
      admission.report([load('p', { nodeRead: { bytes: bytesPerS, busyS: 1 } })]);
  };
  const share = (admission: Admission): number => {
    admission.submit(requestOf(`r${++sequence}`, 10, 10));
    const [assignment] = admission.admit();
    admission.end(assignment!.request, new Error('enough'));
    return assignment!.prefillReadBlocks;
  };

  it('move the split, and move it back', () => {
    const admission = new Admission(optionsOf({ ...split, engines: wide }));
    expect(share(admission)).toBe(5);
    readAt(admission, 60, 250); // a quarter of the nominal 1000 bytes a second
    expect(share(admission)).toBe(2);
    readAt(admission, 60, 1000);
    expect(share(admission)).toBe(5);
    readAt(admission, 60, 0); // stalled: it is still given something
    expect(admission.engine('p').link.readRateBytesPerS).toBe(50);
  });

  it('count only if asked for, and say nothing of a link that was idle', () => {
    const nominal = new Admission(optionsOf({ ...split, adaptLinkRates: false, engines: wide }));
    readAt(nominal, 60, 250);
    expect(share(nominal)).toBe(5);
    const idle = new Admission(optionsOf({ ...split, engines: wide }));
    idle.report([load('p', { nodeRead: { bytes: 0, busyS: 0 } })]);
    expect(share(idle)).toBe(5);
  });
});
