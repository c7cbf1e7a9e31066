import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { layerwiseByEventsS, layerwiseS, sequentialS } from '../../src/simulator/pipeline.js';

const times = fc.record({
  layers: fc.integer({ min: 1, max: 96 }),
  windowLayers: fc.integer({ min: 1, max: 8 }),
  inS: fc.double({ min: 0, max: 1, noNaN: true }),
  computeS: fc.double({ min: 0.001, max: 1, noNaN: true }),
  outS: fc.double({ min: 0, max: 1, noNaN: true }),
});

describe('the closed form of layerwise prefill', () => {
  it('is the pipeline layer by layer, within rounding, when layers are alike', () => {
    fc.assert(
      fc.property(times, (given) => {
        const events = layerwiseByEventsS(given.layers, given.windowLayers, () => given);
        expect(layerwiseS(given) / events).toBeCloseTo(1, 9);
      }),
      { numRuns: 500 },
    );
  });

  it('is within 2 % of it when every layer varies by 5 %, for the layers and window of DS 660B', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 2 ** 31 }), times, (seed, { inS, outS }) => {
        let state = seed;
        const vary = (): number => {
          state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
          return 0.95 + (0.1 * state) / 2 ** 32;
        };
        // Transfers up to half of the computation: up to three times what any figure of the paper has.
        const given = { layers: 61, windowLayers: 4, inS: inS / 2, computeS: 1, outS: outS / 2 };
        const events = layerwiseByEventsS(61, 4, () => ({
          inS: given.inS * vary(),
          computeS: vary(),
          outS: given.outS * vary(),
        }));
        expect(Math.abs(layerwiseS(given) / events - 1)).toBeLessThan(0.02);
      }),
      { numRuns: 300 },
    );
  });

  it('overlaps what Basic does one after the other', () => {
    fc.assert(
      fc.property(times, (given) => {
        expect(layerwiseS(given)).toBeLessThanOrEqual(sequentialS(given) * (1 + 1e-12));
      }),
    );
  });
});
