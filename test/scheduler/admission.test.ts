import { describe, expect, it } from 'vitest';
import { Admission, type ReadPolicy } from '../../src/scheduler/index.js';
import { admitAll, engineOf, expectError, optionsOf, requestOf } from './support.js';

describe('a whole request is reserved at once', () => {
  it('takes PE buffer, DE buffer with spare, and DE HBM to the last token', () => {
    const admission = new Admission(optionsOf({ policy: 'prefill' }));
    const [assignment] = admitAll(admission, {
      request: 'a',
      promptTokens: 13,
      hitTokens: 8,
      maxNewTokens: 8,
    });
    expect(assignment).toEqual({
      request: 'a',
      epoch: 1,
      admission: 1,
      prefillEngine: 'p',
      decodeEngine: 'd',
      side: 'prefill',
      prefillReadBlocks: 2,
      decodeReadBlocks: 0,
      promptBlocks: 4,
      prefillHbmBlocks: 0,
      decodeHbmBlocks: 6,
    });
    expect(admission.engine('p')).toMatchObject({
      bufferBlocks: 2,
      hbmBlocks: 0,
      unfinishedRequests: 1,
      unfinishedTokens: 13,
      link: { readQueueBlocks: 2 },
    });
    expect(admission.engine('d')).toMatchObject({
      bufferBlocks: 5,
      hbmBlocks: 6,
      unfinishedRequests: 1,
      unfinishedTokens: 21,
      link: { readQueueBlocks: 0 },
    });
  });

  it('gives back stage by stage what each stage held', () => {
    const admission = new Admission(optionsOf({ policy: 'split' }));
    const [assignment] = admitAll(admission, requestOf('a', 6, 4));
    expect(assignment).toMatchObject({ side: 'split', prefillReadBlocks: 2, decodeReadBlocks: 2 });
    const p = admission.engine('p');
    const d = admission.engine('d');
    admission.complete('a', 'prefill-read');
    expect([p.link.readQueueBlocks, d.link.readQueueBlocks, p.bufferBlocks]).toEqual([0, 2, 2]);
    admission.complete('a', 'decode-read');
    expect([d.link.readQueueBlocks, d.bufferBlocks]).toEqual([0, 7]);
    admission.complete('a', 'prefill');
    expect([p.bufferBlocks, p.unfinishedTokens, d.bufferBlocks]).toEqual([0, 0, 7]);
    admission.complete('a', 'decode-buffer');
    expect([d.bufferBlocks, d.hbmBlocks, d.unfinishedRequests]).toEqual([1, 7, 1]);
    admission.complete('a', 'request');
    expect([d.bufferBlocks, d.hbmBlocks, d.unfinishedRequests]).toEqual([0, 0, 0]);
    expect(admission.statistics()).toMatchObject({ completed: 1, running: 0, ignoredReports: 0 });
  });

  it('accounts PE HBM for whole prompts where it is given', () => {
    const engines = [engineOf('prefill', 'p', { hbmBlocks: 5 }), engineOf('decode', 'd')];
    const admission = new Admission(optionsOf({ engines }));
    const [first, ...others] = admitAll(admission, requestOf('a', 3, 0), requestOf('b', 3, 0));
    expect(first).toMatchObject({ request: 'a', prefillHbmBlocks: 3 });
    expect(others).toEqual([]);
    expect(admission.statistics().headWaits).toEqual({
      'prefill-room': 1,
      'decode-hbm': 0,
      'decode-buffer': 0,
    });
    admission.complete('a', 'prefill');
    expect(admission.admit()).toMatchObject([{ request: 'b' }]);
  });
});

describe('the waiting queue is FIFO', () => {
  it('lets nothing overtake a head that does not fit, and says what it waits for', () => {
    const admission = new Admission(optionsOf());
    expect(
      admitAll(admission, requestOf('a', 6, 0), requestOf('b', 6, 0), requestOf('c', 1, 0)),
    ).toMatchObject([{ request: 'a' }]);
    expect(admission.statistics()).toMatchObject({ waiting: 2, headWaits: { 'decode-buffer': 1 } });
    admission.complete('a', 'decode-buffer');
    expect(admission.admit().map(({ request }) => request)).toEqual(['b', 'c']);
  });

  it('names HBM when HBM is short', () => {
    const admission = new Admission(optionsOf());
    admitAll(admission, requestOf('a', 1, 0, 60), requestOf('b', 1, 0, 60));
    expect(admission.statistics()).toMatchObject({ waiting: 1, headWaits: { 'decode-hbm': 1 } });
  });

  it('goes on with the next when the head is cancelled', () => {
    const admission = new Admission(optionsOf());
    admitAll(admission, requestOf('a', 6, 0), requestOf('b', 6, 0), requestOf('c', 1, 0));
    const failure = admission.end('b', new Error('no more'));
    expect(failure).toMatchObject({ request: 'b', assignment: undefined });
    expect(admission.admit()).toMatchObject([{ request: 'c' }]);
  });

  it('refuses what exceeds maxWaiting and takes it later', () => {
    const admission = new Admission(optionsOf({ maxWaiting: 1 }));
    admission.submit(requestOf('a', 1, 0));
    expectError(
      () => admission.submit(requestOf('b', 1, 0)),
      'CAPACITY_EXHAUSTED',
      /limit is 1/,
      /maxWaiting/,
    );
    admission.admit();
    admission.submit(requestOf('b', 1, 0));
    expect(admission.statistics()).toMatchObject({ submitted: 2, waiting: 1 });
  });
});

describe('requests that can never run are refused', () => {
  it('names need, limit and remedy of the decode side', () => {
    const admission = new Admission(optionsOf());
    expectError(
      () => admission.submit(requestOf('a', 10, 0)),
      'REQUEST_TOO_LARGE',
      /needs 11 buffer blocks and 11 HBM blocks on one decode engine/,
      /the most is 10 buffer blocks and 20 HBM blocks/,
      /raise bufferBlocks/,
    );
    expectError(() => admission.submit(requestOf('a', 9, 0, 80)), 'REQUEST_TOO_LARGE', /29 HBM blocks/);
    admission.submit(requestOf('a', 9, 9));
    expect(admission.admit()).toHaveLength(1);
  });

  it('wants buffer and HBM on one engine, not on two', () => {
    const engines = [
      engineOf('prefill', 'p'),
      engineOf('decode', 'buffer', { bufferBlocks: 100, hbmBlocks: 2 }),
      engineOf('decode', 'hbm', { bufferBlocks: 2, hbmBlocks: 100 }),
    ];
    const admission = new Admission(optionsOf({ engines }));
    expectError(() => admission.submit(requestOf('a', 5, 0)), 'REQUEST_TOO_LARGE', /together/);
  });

  it.each<[ReadPolicy, boolean]>([
    ['prefill', false],
    ['shorter-queue', true],
    ['split', true],
    ['round-robin', true],
    ['none', true],
  ])('with hits beyond every PE buffer, policy %s can run it: %s', (policy, possible) => {
    const engines = [engineOf('prefill', 'p', { bufferBlocks: 2 }), engineOf('decode', 'd')];
    const admission = new Admission(optionsOf({ engines, policy }));
    if (possible) {
      expect(admitAll(admission, requestOf('a', 6, 6))).toHaveLength(1);
    } else {
      expectError(() => admission.submit(requestOf('a', 6, 6)), 'REQUEST_TOO_LARGE', /6 buffer blocks/);
    }
  });

  it('checks every field of a request and every option', () => {
    const admission = new Admission(optionsOf());
    const good = requestOf('a', 4, 2);
    const refused = (changes: object, pattern: RegExp): void =>
      expectError(() => admission.submit({ ...good, ...changes }), 'INVALID_ARGUMENT', pattern);
    refused({ request: '' }, /request/);
    refused({ promptTokens: 0 }, /promptTokens/);
    refused({ hitTokens: 3 }, /multiple of blockTokens \(4\)/);
    refused({ hitTokens: 20 }, /up to promptTokens \(16\)/);
    refused({ maxNewTokens: -1 }, /maxNewTokens/);
    refused({ maxNewTokens: Number.MAX_SAFE_INTEGER }, /promptTokens \+ maxNewTokens/);
    admission.submit(good);
    refused({}, /has not ended/);

    const wrong = (changes: object, pattern: RegExp): void =>
      expectError(() => new Admission({ ...optionsOf(), ...changes }), 'INVALID_ARGUMENT', pattern);
    wrong({ policy: 'fastest' }, /fastest does not exist: use prefill, shorter-queue/);
    wrong({ maxWaitng: 3 }, /maxWaitng does not exist.*maxWaiting/);
    wrong({ blockTokens: 0 }, /blockTokens is 0/);
    wrong({ blockBytes: Infinity }, /blockBytes/);
    wrong({ engines: [engineOf('prefill', 'p')] }, /no decode engine/);
  });
});

describe('the engines', () => {
  it('PE: one whose link is free by alpha, though it has more tokens', () => {
    const engines = [
      engineOf('prefill', 'slow', { readRateBytesPerS: 100 }),
      engineOf('prefill', 'fast', { readRateBytesPerS: 1000, bufferBlocks: 40 }),
      engineOf('decode', 'd', { bufferBlocks: 1000, hbmBlocks: 1000 }),
    ];
    const admission = new Admission(optionsOf({ engines, policy: 'prefill', alphaS: 2.9 }));
    const one = (name: string): string | undefined =>
      admitAll(admission, requestOf(name, 4, 3))[0]?.prefillEngine;
    const chosen = Array.from({ length: 9 }, (_, i) => one(`r${i}`));
    // The first on `slow` fills its link for 3 s, so it is of class C3; `fast` (0.3 s each) gets all others.
    expect(chosen.filter((engine) => engine === 'slow')).toHaveLength(1);
    for (const name of ['r1', 'r2', 'r3']) admission.complete(name, 'prefill-read');
    expect(admission.request('r8')?.prefillEngine).toBe('fast');
  });

  it('PE: none beyond beta, until it has finished some', () => {
    const admission = new Admission(optionsOf({ betaTokens: 8 }));
    const assigned = admitAll(admission, ...['a', 'b', 'c'].map((name) => requestOf(name, 2, 0)));
    expect(assigned).toHaveLength(2); // at 16 tokens it is over beta, at 8 it was not
    admission.complete('a', 'prefill');
    expect(admission.admit()).toMatchObject([{ request: 'c' }]);
  });

  it('PE: unfinished tokens count hits by their weight', () => {
    const options = { betaTokens: 8, hitTokenWeight: 0.25 };
    const admission = new Admission(optionsOf(options));
    admitAll(admission, requestOf('a', 4, 3));
    expect(admission.engine('p').unfinishedTokens).toBe(7);
  });

  it('PE: among equal queues the least unfinished tokens, hits included', () => {
    const engines = [
      engineOf('prefill', 'p1'),
      engineOf('prefill', 'p2'),
      engineOf('decode', 'd', { bufferBlocks: 1000, hbmBlocks: 1000 }),
    ];
    const admission = new Admission(optionsOf({ engines, policy: 'none' }));
    const [big] = admitAll(admission, requestOf('big', 8, 7));
    const rest = admitAll(admission, ...['a', 'b', 'c', 'd'].map((name) => requestOf(name, 2, 0)));
    expect(rest.every(({ prefillEngine }) => prefillEngine !== big?.prefillEngine)).toBe(true);
  });

  it('two engines of one node share its read queue', () => {
    const engines = [
      engineOf('prefill', 'p1', { node: 'n1' }),
      engineOf('prefill', 'p2', { node: 'n1' }),
      engineOf('prefill', 'p3', { node: 'n2' }),
      engineOf('decode', 'd', { bufferBlocks: 1000, hbmBlocks: 1000 }),
    ];
    const admission = new Admission(optionsOf({ engines, policy: 'prefill', alphaS: 0 }));
    const nodes = ['r0', 'r1'].map((name) => {
      const [assignment] = admitAll(admission, requestOf(name, 3, 2));
      return assignment?.prefillEngine === 'p3' ? 'n2' : 'n1';
    });
    expect(nodes.sort()).toEqual(['n1', 'n2']); // one request makes both engines of n1 class C3
    expect(admission.engine('p1').link).toBe(admission.engine('p2').link);
  });

  it('ties fall by seed, on every engine', () => {
    const engines = [
      engineOf('prefill', 'p'),
      ...['d1', 'd2', 'd3', 'd4'].map((name) => engineOf('decode', name)),
    ];
    const first = (seed: number): string | undefined =>
      admitAll(new Admission(optionsOf({ engines, seed })), requestOf('a', 1, 0))[0]?.decodeEngine;
    const chosen = Array.from({ length: 60 }, (_, seed) => first(seed));
    expect(new Set(chosen).size).toBe(4);
    expect(Array.from({ length: 60 }, (_, seed) => first(seed))).toEqual(chosen);
  });

  it('stale loads are counted, and no report makes a herd', () => {
    const engines = [
      engineOf('prefill', 'p'),
      engineOf('decode', 'd1', { bufferBlocks: 1000, hbmBlocks: 1000 }),
      engineOf('decode', 'd2', { bufferBlocks: 1000, hbmBlocks: 1000 }),
    ];
    const admission = new Admission(optionsOf({ engines }));
    const idle = { unfinishedRequests: 0, unfinishedTokens: 0, nodeReadQueueBlocks: 0 };
    const busy = { unfinishedRequests: 9, unfinishedTokens: 900, nodeReadQueueBlocks: 0 };
    admission.report([
      { engine: 'd1', sequence: 2, ...idle },
      { engine: 'd2', sequence: 1, ...busy },
      { engine: 'd1', sequence: 1, ...busy },
      { engine: 'd1', sequence: 2, ...busy },
    ]);
    expect(admission.statistics().staleLoads).toBe(2);
    expect(admission.engine('d1').reported).toMatchObject({ sequence: 2, unfinishedTokens: 0 });
    const chosen = admitAll(admission, ...Array.from({ length: 20 }, (_, i) => requestOf(`r${i}`, 1, 0)));
    expect(chosen.filter(({ decodeEngine }) => decodeEngine === 'd1')).toHaveLength(10);
    expectError(
      () => admission.report([{ engine: 'd1', sequence: Number.NaN, ...idle }]),
      'INVALID_ARGUMENT',
      /sequence of engine d1's load is NaN/,
    );
  });
});

describe('reports that come late, twice or of another admission', () => {
  it('are ignored and counted', () => {
    const admission = new Admission(optionsOf());
    admitAll(admission, requestOf('a', 2, 1));
    expect(admission.complete('a', 'prefill', 7)).toBe(false);
    expect(admission.complete('a', 'prefill', 1)).toBe(true);
    expect(admission.complete('a', 'prefill')).toBe(false);
    expect(admission.complete('b', 'prefill')).toBe(false);
    expect(admission.end('a', new Error('late'), 7)).toBeUndefined();
    expect(admission.complete('a', 'request')).toBe(true);
    expect(admission.end('a', new Error('late'))).toBeUndefined();
    expect(admission.statistics()).toMatchObject({ ignoredReports: 5, completed: 1, failed: 0 });
    expectError(() => admission.complete('a', 'begin' as 'prefill'), 'INVALID_ARGUMENT', /use prefill-read/);
  });
});

describe('the loss of an engine', () => {
  const engines = [
    engineOf('prefill', 'p1'),
    engineOf('prefill', 'p2'),
    engineOf('decode', 'd1'),
    engineOf('decode', 'd2', { bufferBlocks: 4 }),
  ];

  it('ends its requests with PEER_LOST, raises the epoch and frees their other engine', () => {
    const admission = new Admission(optionsOf({ engines, policy: 'prefill' }));
    const assignments = admitAll(admission, requestOf('a', 3, 2), requestOf('b', 3, 2), requestOf('c', 3, 2));
    const failures = admission.engineLost('p1');
    const onLost = assignments.filter(({ prefillEngine }) => prefillEngine === 'p1');
    expect(onLost.length).toBeGreaterThan(0);
    expect(failures.map(({ assignment }) => assignment)).toEqual(onLost);
    expect(failures.every(({ error }) => 'code' in error && error.code === 'PEER_LOST')).toBe(true);
    expect(admission.epoch()).toBe(2);
    expect(admission.engineLost('p1')).toEqual([]);
    expect(admission.epoch()).toBe(2);
    for (const { request, admission: number } of assignments) admission.complete(request, 'request', number);
    expect(admission.statistics()).toMatchObject({
      completed: 3 - onLost.length,
      ignoredReports: onLost.length,
    });
    expect([...admission.engines()].every(({ bufferBlocks }) => bufferBlocks === 0)).toBe(true);
  });

  it('leaves alone requests that a lost PE has finished', () => {
    const admission = new Admission(optionsOf({ engines }));
    const [assignment] = admitAll(admission, requestOf('a', 3, 2));
    admission.complete('a', 'prefill');
    expect(admission.engineLost(assignment?.prefillEngine ?? '')).toEqual([]);
    expect(admission.complete('a', 'request', 1)).toBe(true);
  });

  it('ignores completions of the life before', () => {
    const admission = new Admission(optionsOf({ engines }));
    const [before] = admitAll(admission, requestOf('a', 2, 2));
    admission.engineLost(before?.prefillEngine ?? '');
    const [after] = admitAll(admission, requestOf('a', 2, 2));
    expect(after?.epoch).toBe(2);
    expect(admission.complete('a', 'request', before?.admission)).toBe(false);
    expect(admission.complete('a', 'request', after?.admission)).toBe(true);
  });

  it('hands out anew, in order, what was in line for a lost DE', () => {
    const room = { bufferBlocks: 7, hbmBlocks: 100 };
    const groups = [
      engineOf('prefill', 'p1'),
      engineOf('prefill', 'p2'),
      engineOf('decode', 'd1', { group: 'g1', ...room }),
      engineOf('decode', 'd2', { group: 'g2', ...room }),
    ];
    const admission = new Admission(optionsOf({ engines: groups }));
    admitAll(admission, requestOf('a', 6, 0), requestOf('b', 6, 0)); // one on each DE, whose buffer is full
    admitAll(admission, requestOf('c', 6, 0));
    const lostGroup = admission.request('c')!.decodeGroup;
    admission.submit(requestOf('d', 6, 0));
    admission.fetch('prefill-group', []); // d has a PE and no group yet
    expect(admission.request('d')).toMatchObject({ state: 'placed', decodeGroup: undefined });
    const lostDecode = lostGroup === 'g1' ? 'd1' : 'd2';
    const [failure] = admission.engineLost(lostDecode);
    const left = failure!.request === 'a' ? 'b' : 'a';
    admission.end(left, new Error('make room'));
    expect(admission.admit()).toMatchObject([{ request: 'c' }]);
    admission.complete('c', 'request');
    expect(admission.admit()).toMatchObject([{ request: 'd' }]);
  });

  it('gives another PE to what had a lost one and was not assigned', () => {
    const admission = new Admission(optionsOf({ engines }));
    admission.submit(requestOf('a', 3, 2));
    admission.fetch('prefill-group', []);
    const before = admission.request('a')!.prefillEngine!;
    expect(admission.engineLost(before)).toEqual([]);
    expect(admission.request('a')).toMatchObject({ state: 'waiting', prefillEngine: undefined });
    const [assignment] = admission.admit();
    expect(assignment!.prefillEngine).not.toBe(before);
    expect(admission.engine(before)).toMatchObject({ unfinishedRequests: 0, unfinishedTokens: 0 });
  });

  it('ends waiting requests that no engine left could hold, and refuses new ones', () => {
    const admission = new Admission(optionsOf({ engines }));
    admitAll(admission, requestOf('a', 7, 0), requestOf('b', 7, 0), requestOf('c', 2, 0));
    const failures = admission.engineLost('d1');
    expect(failures.map(({ request }) => request)).toEqual(['a', 'b']);
    expect(failures[1]?.error.message).toMatch(/engine d1 was lost.*needs 8 buffer blocks.*most is 4/);
    expect(admission.admit()).toMatchObject([{ request: 'c', decodeEngine: 'd2' }]);
    expect(admission.engineLost('d2')).toMatchObject([{ request: 'c' }]);
    expectError(() => admission.submit(requestOf('d', 1, 0)), 'PEER_LOST', /no decode engine is left/);
    expectError(() => admission.engineLost('d9'), 'INVALID_ARGUMENT', /no engine d9/);
  });
});
