import fc from 'fast-check';
import { expect, it } from 'vitest';
import { EventHeap } from '../../src/simulator/event-heap.js';

const steps = fc.array(fc.option(fc.integer({ min: 0, max: 20 }), { freq: 3 }), { maxLength: 400 });

it('takes the earliest first, equals in the order in which they were added', () => {
  fc.assert(
    fc.property(steps, (times) => {
      const heap = new EventHeap(2);
      const plain: { timeS: number; order: number }[] = [];
      for (const [order, timeS] of times.entries()) {
        if (timeS !== null) {
          heap.add(timeS, 7, order);
          plain.push({ timeS, order });
          continue;
        }
        plain.sort((a, b) => a.timeS - b.timeS || a.order - b.order);
        const expected = plain.shift();
        expect(heap.take()).toBe(expected !== undefined);
        if (expected)
          expect([heap.timeS, heap.kind, heap.index]).toEqual([expected.timeS, 7, expected.order]);
      }
      expect(heap.size).toBe(plain.length);
    }),
    { numRuns: 200 },
  );
});
