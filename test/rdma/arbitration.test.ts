import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  classShares,
  defaultTrafficClasses,
  guaranteedShares,
  laneShares,
  paperArbitration,
  portArbitration,
  trafficClasses,
  type Arbitration,
  type LaneWeight,
} from '../../src/rdma/index.js';
import { simulate } from './vl-arbiter.js';

const table = fc.array(
  fc.record({ lane: fc.integer({ min: 0, max: 4 }), weight: fc.integer({ min: 0, max: 255 }) }),
  { maxLength: 5 },
);

describe('shares of a port', () => {
  it('are those that packets get one by one', () => {
    fc.assert(
      fc.property(
        fc.record({ high: table, low: table, highLimit: fc.constantFrom(0, 1, 3, 9, 255) }),
        fc.uniqueArray(fc.integer({ min: 0, max: 4 }), { minLength: 1, maxLength: 5 }),
        (arbitration, busy) => {
          const measured = simulate(arbitration, busy, 20_000);
          for (const [lane, share] of laneShares(arbitration, busy))
            expect(Math.abs(measured[lane]! - share)).toBeLessThan(0.01);
        },
      ),
      { numRuns: 200 },
    );
  });

  it('of the paper leave KV-Cache a floor of 0.04 to 0.4 %, not 1 %', () => {
    expect(classShares(['kv']).kv).toBe(1);
    expect(classShares(['inference', 'kv']).kv).toBeCloseTo(1 / 241 / 4, 12);
    expect(guaranteedShares().kv).toBeCloseTo(1 / 241 / 10, 12);
    expect(guaranteedShares().kv).toBeGreaterThan(0.0004);
    const kvAlone = { ...paperArbitration, low: paperArbitration.low.filter(({ lane }) => lane === 2) };
    expect(guaranteedShares(kvAlone).kv).toBeCloseTo(0.0041, 4);
    const { inference, kv, control } = classShares(['inference', 'kv', 'control']);
    expect(inference + kv + control).toBeCloseTo(1, 12);
    expect(inference).toBeCloseTo(control, 12);
  });

  it('are what native/test/transfer/links_test.cc measures on emulated links', () => {
    const lanes = trafficClasses({ control: { virtualLane: 1, serviceLevel: 1 } });
    const kv = (arbitration: Arbitration): number => classShares(['inference', 'kv'], arbitration, lanes).kv;
    const [one, two] = [1, 2].map((lane) => (weight: number): LaneWeight => ({ lane, weight }));
    expect(kv({ high: [one!(64)], low: [two!(64)], highLimit: 16 })).toBeCloseTo(1 / 17, 12);
    expect(kv({ high: [], low: [one!(192), two!(192), one!(128)], highLimit: 0 })).toBeCloseTo(3 / 8, 12);
  });

  it('of classes on one lane are even', () => {
    const classes = trafficClasses({ control: { virtualLane: 2 } });
    const shares = classShares(['inference', 'kv', 'control'], paperArbitration, classes);
    expect(shares.kv).toBe(shares.control);
    expect(shares.inference + 2 * shares.kv).toBeCloseTo(1, 12);
  });
});

describe('tables of a port', () => {
  it('are checked', () => {
    expect(portArbitration().lanes).toEqual({ inference: 1, kv: 2, control: 3 });
    const of =
      (arbitration: Partial<Arbitration>, classes = defaultTrafficClasses): (() => unknown) =>
      () =>
        portArbitration(classes, { ...paperArbitration, ...arbitration });
    expect(of({ highLimit: 256 })).toThrow(/highLimit: 256; whole numbers from 0 to 255/);
    expect(of({ high: [{ lane: 15, weight: 1 }] })).toThrow(/virtual lane in table high: 15; .* 0 to 14/);
    expect(of({ low: [{ lane: 2, weight: 256 }] })).toThrow(/weight of lane 2 in table low: 256/);
    expect(of({ low: [] })).toThrow(/class kv has virtual lane 2, to which neither table gives any weight/);
    expect(of({ low: new Array<LaneWeight>(65).fill({ lane: 1, weight: 1 }) })).toThrow(/65 entries/);
    expect(() => trafficClasses({ kv: { virtualLane: 15 } })).toThrow(/virtual lane \(VL\) 15; .* 0 to 14/);
  });
});
