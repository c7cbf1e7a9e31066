/** Engines that join, close, are lost and come back; requests that another scheduler assigned. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Admission, type Assignment, type Stage } from '../../src/scheduler/index.js';
import { admitAll, engineOf, expectError, optionsOf, requestOf } from './support.js';

const none = optionsOf({ engines: [] });

function account(admission: Admission): object[] {
  return [...admission.engines()]
    .filter(({ lost }) => !lost)
    .map(({ capacity, bufferBlocks, hbmBlocks, unfinishedRequests, unfinishedTokens, link }) => ({
      engine: capacity.engine,
      ...{ bufferBlocks, hbmBlocks, unfinishedRequests, unfinishedTokens },
      queue: link.readQueueBlocks,
    }))
    .sort((a, b) => a.engine.localeCompare(b.engine));
}

describe('Admission with engines that come and go', () => {
  it('begins without engines and takes those that join', () => {
    const admission = new Admission(none);
    expectError(() => admission.submit(requestOf('a', 2, 0)), 'PEER_LOST', /no prefill engine/);
    admission.join([engineOf('prefill', 'p')]);
    expectError(() => admission.submit(requestOf('a', 2, 0)), 'PEER_LOST', /no decode engine/);
    admission.join([engineOf('decode', 'd')]);
    expect(admitAll(admission, requestOf('a', 2, 0))).toMatchObject([
      { prefillEngine: 'p', decodeEngine: 'd' },
    ]);
    expectError(() => admission.join([engineOf('decode', 'd')]), 'INVALID_ARGUMENT', /name is taken/);
    expectError(
      () => admission.join([engineOf('decode', 'p2', { group: 'prefill-group' })]),
      'INVALID_ARGUMENT',
    );
  });

  it('keeps running requests and those in line when an engine joins', () => {
    const admission = new Admission(optionsOf());
    const [first] = admitAll(admission, requestOf('a', 4, 2), requestOf('b', 5, 0), requestOf('c', 6, 0));
    expect(admission.statistics()).toMatchObject({ running: 1, waiting: 2 });
    admission.join([engineOf('decode', 'd2', { group: 'decode-2' })]);
    expect(admission.admit().map(({ request, decodeEngine }) => [request, decodeEngine])).toEqual([
      ['b', 'd2'],
    ]);
    admission.complete('a', 'request', first!.admission);
    expect(admission.admit()).toMatchObject([{ request: 'c', decodeEngine: 'd' }]);
  });

  it('gives closed engines nothing and lets them keep what they have', () => {
    const engines = [engineOf('prefill', 'p'), engineOf('decode', 'd1'), engineOf('decode', 'd2')];
    const admission = new Admission(optionsOf({ engines }));
    admission.setOpen('d1', false);
    expect(admitAll(admission, requestOf('a', 2, 0), requestOf('b', 2, 0))).toMatchObject([
      { decodeEngine: 'd2' },
      { decodeEngine: 'd2' },
    ]);
    admission.setOpen('d2', false);
    expect(admitAll(admission, requestOf('c', 2, 0))).toEqual([]);
    expect(admission.request('c')).toMatchObject({ state: 'placed', decodeGroup: undefined });
    admission.setOpen('p', false);
    expect(admission.request('c')?.state).toBe('waiting');
    admission.setOpen('d1', true);
    expect(admission.admit()).toEqual([]);
    admission.setOpen('p', true);
    expect(admission.admit()).toMatchObject([{ request: 'c', decodeEngine: 'd1' }]);
    expect(admission.statistics().running).toBe(3);
  });

  it('takes a lost engine back as a new one', () => {
    const admission = new Admission(optionsOf());
    admitAll(admission, requestOf('a', 2, 1));
    expect(admission.engineLost('d')).toMatchObject([{ request: 'a' }]);
    admission.join([engineOf('decode', 'd', { hbmBlocks: 9 })]);
    expect(admission.engine('d')).toMatchObject({ lost: false, hbmBlocks: 0, capacity: { hbmBlocks: 9 } });
    expect(admitAll(admission, requestOf('a', 2, 1))).toMatchObject([{ decodeEngine: 'd', admission: 2 }]);
  });

  it('counts assignments on from a base', () => {
    const admission = new Admission(optionsOf({ admissionBase: 1000 }));
    expect(admitAll(admission, requestOf('a', 2, 0))).toMatchObject([{ admission: 1001 }]);
    expect(admission.statistics().admitted).toBe(1);
  });

  it('adopts no request without its engines or their room', () => {
    const [made] = admitAll(new Admission(optionsOf()), requestOf('a', 9, 0));
    const admission = new Admission(optionsOf());
    const adopt = (changes: Partial<Assignment>): boolean =>
      admission.adopt(requestOf('a', 9, 0), { ...made!, ...changes }, []);
    expect(adopt({ decodeEngine: 'gone' })).toBe(false);
    expect(adopt({ decodeEngine: 'p' })).toBe(false);
    admitAll(admission, requestOf('b', 9, 0));
    const before = account(admission);
    expect(adopt({})).toBe(false);
    expect(account(admission)).toEqual(before);
  });

  it('has after adopting all that runs the account that the first scheduler had', () => {
    const stages: Stage[] = ['prefill-read', 'decode-read', 'prefill', 'decode-buffer'];
    fc.assert(
      fc.property(
        fc.array(fc.record({ blocks: fc.integer({ min: 1, max: 4 }), done: fc.nat(4) }), { maxLength: 8 }),
        fc.constantFrom('prefill', 'shorter-queue', 'split'),
        (requests, policy) => {
          const first = new Admission(optionsOf({ policy }));
          const second = new Admission(optionsOf({ policy, admissionBase: 100 }));
          for (const [i, { blocks, done }] of requests.entries()) {
            const description = requestOf(`r${i}`, blocks, blocks - 1);
            first.submit(description);
            for (const assignment of first.admit()) {
              const reported = stages.slice(0, done);
              for (const stage of reported) first.complete(assignment.request, stage);
              expect(second.adopt(description, assignment, reported)).toBe(true);
            }
            first.end(`r${i}`, new Error(), 0);
            if (first.request(`r${i}`)?.state !== 'running') first.end(`r${i}`, new Error());
          }
          expect(account(second)).toEqual(account(first));
          expect(second.statistics().running).toBe(first.statistics().running);
        },
      ),
      { numRuns: 200 },
    );
  });
});
