import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { EventHeap } from '../../src/route-eval/event-heap.js';

describe('EventHeap', () => {
  it('gives events by time, and those of one time in the order they came', () => {
    fc.assert(
      fc.property(
        fc.array(fc.option(fc.integer({ min: 0, max: 5 }), { freq: 2 }), { maxLength: 80 }),
        (steps) => {
          const heap = new EventHeap(80);
          let plain: { time: number; value: number }[] = [];
          for (const [value, time] of steps.entries()) {
            if (time !== null) {
              heap.push(time, value);
              plain.push({ time, value });
              plain = plain.sort((a, b) => a.time - b.time);
            } else if (plain.length > 0) {
              expect(heap.nextTime).toBe(plain[0]!.time);
              expect(heap.pop()).toBe(plain.shift()!.value);
            }
            expect(heap.size).toBe(plain.length);
          }
          expect(heap.nextTime).toBe(plain[0]?.time ?? Infinity);
        },
      ),
      { numRuns: 300 },
    );
  });
});
