import { describe, expect, it } from 'vitest';
import { Admission, type AdmissionOptions, type RequestDescription } from '../../src/scheduler/index.js';
import { engineOf, expectError, optionsOf, requestOf } from './support.js';

/** Requests one at a time: beta 0 lets a PE have one, and its end lets the next go. */
function order(
  options: Partial<AdmissionOptions>,
  ...requests: readonly (readonly [RequestDescription, number?])[]
): string[] {
  const engines = [
    engineOf('prefill', 'p'),
    engineOf('decode', 'd', { bufferBlocks: 1000, hbmBlocks: 1000 }),
  ];
  const admission = new Admission(optionsOf({ engines, betaTokens: 0, ...options }));
  admission.submit(requestOf('first', 1, 0));
  admission.admit();
  for (const [request, nowS] of requests) admission.submit(request, nowS);
  let last = 'first';
  return requests.map(() => {
    admission.complete(last, 'prefill');
    const [assignment] = admission.admit();
    return (last = assignment!.request);
  });
}

describe('the order of waiting requests', () => {
  const mixed = [
    [requestOf('long', 9, 0), 0],
    [requestOf('short', 1, 0), 5],
    [requestOf('late', 1, 0), 40],
  ] as const;

  it('fifo: by submission, whatever their size and time', () => {
    expect(order({}, ...mixed)).toEqual(['long', 'short', 'late']);
  });

  it('slack: a long prompt lets short ones pass that come soon after it, and no later ones', () => {
    // 36 tokens against 4 at 1 s a token: up to 32 s.
    expect(order({ order: 'slack', slackSPerToken: 1 }, ...mixed)).toEqual(['short', 'long', 'late']);
  });

  it('slack: hits count by their weight', () => {
    const cached = [[requestOf('cached', 9, 9), 0], mixed[1]] as const;
    const options = { order: 'slack', slackSPerToken: 1 } as const;
    expect(order({ ...options, hitTokenWeight: 0 }, ...cached)).toEqual(['cached', 'short']);
    expect(order({ ...options, hitTokenWeight: 1 }, ...cached)).toEqual(['short', 'cached']);
  });

  it('priority: a head start in seconds, so nobody starves', () => {
    const high = { ...requestOf('high', 1, 0), priority: 2 };
    const low = [requestOf('low', 1, 0), 0] as const;
    expect(order({ priorityHeadStartS: 10 }, low, [high, 15])).toEqual(['high', 'low']);
    expect(order({ priorityHeadStartS: 10 }, low, [high, 25])).toEqual(['low', 'high']);
    expect(order({}, low, [high, 0])).toEqual(['low', 'high']);
  });

  it('tenants: one with many requests does not hold up another', () => {
    const of = (tenant: string, i: number): RequestDescription => ({
      ...requestOf(`${tenant}${i}`, 2, 0),
      tenant,
    });
    const many = Array.from({ length: 6 }, (_, i) => [of('a', i)] as const);
    const few = Array.from({ length: 2 }, (_, i) => [of('b', i)] as const);
    const tenants = [
      { tenant: 'a', weight: 1 },
      { tenant: 'b', weight: 1 },
      { tenant: 'first', weight: 1 },
    ];
    const admission = new Admission(optionsOf({ betaTokens: 0, tenants }));
    admission.submit({ ...requestOf('first', 1, 0), tenant: 'first' });
    admission.admit();
    for (const [request] of [...many, ...few]) admission.submit(request);
    let last = 'first';
    const seen = [...many, ...few].map(() => {
      admission.complete(last, 'prefill');
      admission.complete(last, 'request');
      return (last = admission.admit()[0]!.request);
    });
    expect(seen.slice(0, 4).filter((name) => name.startsWith('b'))).toHaveLength(2);
    expect(seen.filter((name) => name.startsWith('a'))).toEqual(['a0', 'a1', 'a2', 'a3', 'a4', 'a5']);
  });

  it('a newcomer that goes first is tried, though the head before it did not fit', () => {
    const engines = [
      engineOf('prefill', 'p'),
      engineOf('decode', 'd', { bufferBlocks: 100, hbmBlocks: 100 }),
    ];
    const options = { engines, policy: 'prefill', order: 'slack', slackSPerToken: 1 } as const;
    const admission = new Admission(optionsOf(options));
    admission.submit(requestOf('a', 6, 6));
    admission.submit(requestOf('b', 6, 6));
    expect(admission.admit()).toMatchObject([{ request: 'a' }]);
    admission.submit(requestOf('c', 2, 2));
    expect(admission.admit()).toMatchObject([{ request: 'c' }]);
  });

  it('refuses what makes no sense', () => {
    const admission = new Admission(optionsOf());
    expectError(() => admission.submit(requestOf('a', 1, 0), Number.NaN), 'INVALID_ARGUMENT', /nowS is NaN/);
    const priority = { ...requestOf('a', 1, 0), priority: 256 };
    expectError(
      () => admission.submit(priority),
      'INVALID_ARGUMENT',
      /priority of request a is 256, the limit is 255/,
    );
    expect(admission.statistics()).toMatchObject({ submitted: 0, waiting: 0 });
    const wrong = (changes: object, pattern: RegExp): void =>
      expectError(() => new Admission({ ...optionsOf(), ...changes }), 'INVALID_ARGUMENT', pattern);
    wrong({ order: 'lifo' }, /order lifo does not exist: use fifo, slack/);
    wrong({ betaTokens: -1 }, /betaTokens is -1/);
    wrong({ hitTokenWeight: 1.5 }, /hitTokenWeight is 1.5, the limit is 1/);
    wrong({ tenants: [{ tenant: 'a', weight: 0 }] }, /weight of tenant a is 0/);
    wrong({ tenants: [1, 2].map((weight) => ({ tenant: 'a', weight })) }, /tenant a has two shares/);
  });
});
