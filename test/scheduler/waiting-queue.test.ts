import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { RequestEntry } from '../../src/scheduler/request-entry.js';
import { WaitingQueue } from '../../src/scheduler/waiting-queue.js';
import { expectError, requestOf } from './support.js';

let sequence = 0;

function entryOf(name: string, key = 0, tenant?: string, prefillTokens = 1): RequestEntry {
  const description = { ...requestOf(name, 1, 0), ...(tenant === undefined ? {} : { tenant }) };
  return {
    description,
    sequence: sequence++,
    key,
    prefillTokens,
    state: 'waiting',
    needs: undefined,
    prefill: undefined,
    readsAll: false,
    decodeGroup: undefined,
    decode: undefined,
    assignment: undefined,
    done: 0,
  };
}

function cancel(queue: WaitingQueue, entry: RequestEntry): void {
  entry.state = 'ended';
  queue.removed(entry);
}

function takeAll(queue: WaitingQueue): string[] {
  return Array.from({ length: queue.size }, () => queue.take()!.description.request);
}

describe('WaitingQueue', () => {
  it('behaves as a sorted array', () => {
    const operation = fc.record({
      kind: fc.constantFrom('push' as const, 'push' as const, 'remove' as const, 'take' as const),
      key: fc.nat(9),
      which: fc.nat(500),
    });
    fc.assert(
      fc.property(fc.array(operation, { maxLength: 600, size: 'max' }), (operations) => {
        const queue = new WaitingQueue(1000);
        let plain: RequestEntry[] = [];
        for (const { kind, key, which } of operations) {
          if (kind === 'push') {
            const entry = entryOf('r', key);
            queue.push(entry);
            plain.push(entry);
            plain.sort((a, b) => a.key - b.key || a.sequence - b.sequence);
          } else if (kind === 'remove' && plain.length > 0) {
            const entry = plain[which % plain.length]!;
            cancel(queue, entry);
            plain = plain.filter((other) => other !== entry);
          } else if (kind === 'take') {
            expect(queue.head()).toBe(plain[0]);
            expect(queue.take()).toBe(plain.shift());
          }
          expect(queue.size).toBe(plain.length);
        }
        expect([...queue]).toEqual(plain);
      }),
      { numRuns: 40, seed: 20260226 },
    );
  });

  it('counts what waits, here and elsewhere, against its limit', () => {
    const queue = new WaitingQueue(3);
    for (let i = 0; i < 500; i++) {
      const entries = [entryOf(`r${i}`), entryOf(`s${i}`)];
      for (const entry of entries) queue.push(entry);
      expectError(() => queue.check('t', undefined, 1), 'CAPACITY_EXHAUSTED', /3 requests already do/);
      queue.check('t', undefined);
      for (const entry of entries) cancel(queue, entry);
    }
    expect(queue.head()).toBeUndefined();
  });
});

describe('tenants', () => {
  it('get prefill work by weight while they wait, whatever the sizes of their requests', () => {
    const queue = new WaitingQueue(1000, [
      { tenant: 'large', weight: 3 },
      { tenant: 'small', weight: 1 },
    ]);
    for (let i = 0; i < 50; i++) queue.push(entryOf(`l${i}`, 0, 'large', 900));
    for (let i = 0; i < 400; i++) queue.push(entryOf(`s${i}`, 0, 'small', 20));
    const given = { large: 0, small: 0 };
    for (let i = 0; i < 300; i++) {
      const { description, prefillTokens } = queue.take()!;
      given[description.tenant as 'large'] += prefillTokens;
    }
    expect(given.large / given.small).toBeCloseTo(3, 0);
  });

  it('do not save up while they are idle', () => {
    const queue = new WaitingQueue(1000, [
      { tenant: 'busy', weight: 1 },
      { tenant: 'late', weight: 1 },
    ]);
    for (let i = 0; i < 30; i++) queue.push(entryOf(`b${i}`, 0, 'busy', 10));
    for (let i = 0; i < 20; i++) queue.take();
    for (let i = 0; i < 10; i++) queue.push(entryOf(`l${i}`, 0, 'late', 10));
    const next = takeAll(queue).slice(0, 10);
    const late = next.filter((name) => name.startsWith('l')).length;
    expect(Math.abs(late - 5)).toBeLessThanOrEqual(1);
  });

  it('without a share are refused, by name', () => {
    const queue = new WaitingQueue(10, [{ tenant: 'a', weight: 1 }]);
    expectError(
      () => queue.check('r', 'b'),
      'INVALID_ARGUMENT',
      /tenant b of request r has no share: name one of a/,
    );
    expectError(() => queue.check('r', undefined), 'INVALID_ARGUMENT', /tenant \(none\)/);
  });
});
