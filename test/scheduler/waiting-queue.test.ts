import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { WaitingQueue } from '../../src/scheduler/waiting-queue.js';
import { expectError, requestOf } from './support.js';

describe('WaitingQueue', () => {
  it('behaves as a plain array', () => {
    const operation = fc.oneof(
      fc.record({ kind: fc.constant('push' as const), name: fc.nat(200) }),
      fc.record({ kind: fc.constant('remove' as const), name: fc.nat(200) }),
      fc.record({ kind: fc.constant('shift' as const), name: fc.constant(0) }),
    );
    fc.assert(
      fc.property(fc.array(operation, { maxLength: 600, size: 'max' }), (operations) => {
        const queue = new WaitingQueue(1000);
        let plain: string[] = [];
        for (const { kind, name } of operations) {
          const request = `r${name}`;
          if (kind === 'push' && !plain.includes(request)) {
            queue.push(requestOf(request, 1, 0));
            plain.push(request);
          } else if (kind === 'remove') {
            expect(queue.remove(request)).toBe(plain.includes(request));
            plain = plain.filter((other) => other !== request);
          } else if (kind === 'shift') {
            expect(queue.head()?.request).toBe(plain[0]);
            const head = plain.shift();
            if (head !== undefined) queue.remove(head);
          }
          expect(queue.size).toBe(plain.length);
        }
        expect([...queue].map(({ request }) => request)).toEqual(plain);
      }),
      { numRuns: 40, seed: 20260226 },
    );
  });

  it('puts a request that left and came back at the end', () => {
    const queue = new WaitingQueue(10);
    for (const name of ['a', 'b']) queue.push(requestOf(name, 1, 0));
    queue.remove('a');
    queue.push(requestOf('a', 1, 0));
    expect([...queue].map(({ request }) => request)).toEqual(['b', 'a']);
    expect(queue.head()?.request).toBe('b');
  });

  it('counts only what waits against its limit', () => {
    const queue = new WaitingQueue(2);
    for (let i = 0; i < 500; i++) {
      queue.push(requestOf(`r${i}`, 1, 0));
      queue.push(requestOf(`s${i}`, 1, 0));
      expectError(() => queue.push(requestOf('t', 1, 0)), 'CAPACITY_EXHAUSTED', /2 requests already do/);
      queue.remove(`r${i}`);
      queue.remove(`s${i}`);
    }
    expect(queue.head()).toBeUndefined();
  });
});
