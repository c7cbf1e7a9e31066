import { describe, expect, it } from 'vitest';
import { laneFloor, ratioRange, workingSetBytes } from '../../src/simulator/bounds.js';
import { hardwareOf } from '../../src/simulator/hardware.js';
import { table1Rows } from '../../src/simulator/paper/arithmetic.js';

describe('formulas', () => {
  it('give the range of the testbed, and what binds', () => {
    const { lower, upper, violated } = ratioRange(hardwareOf('hopper'));
    expect(lower.limit).toBeCloseTo(1 / 7, 12);
    expect(upper.limit).toBeCloseTo(3.5, 12);
    expect([lower.name, upper.name]).toEqual(['PE CNIC write: s/(g - s)', 'DE CNIC write: (g - s)/(2s)']);
    expect(violated).toEqual([]);
  });

  it('say what no ratio can mend', () => {
    const { violated } = ratioRange({ ...hardwareOf('hopper'), snicBytesPerS: 5 * 50e9 });
    expect(violated.some((bound) => bound.startsWith('PE CNIC read'))).toBe(true);
  });

  it('give the floor of the KV lane: 0.04 to 0.4 %', () => {
    const { low, high } = laneFloor(240, 64, [192, 192, 64, 192]);
    expect(low).toBeCloseTo(0.0004, 4);
    expect(high).toBeCloseTo(0.004, 3);
  });

  it('give the published working set', () => {
    expect(workingSetBytes(0.45, 1100, 55_958, 48_068) / 681e9).toBeCloseTo(1, 1);
  });

  it('reproduce Table 1', () => {
    for (const { withinTolerance } of table1Rows()) expect(withinTolerance).toBe(true);
  });
});
