import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { takesFirst, type Candidate, type ChoiceRule } from '../../src/router/index.js';

const candidates = fc.record({
  hitBlocks: fc.integer({ min: 0, max: 3 }),
  queueS: fc.integer({ min: 0, max: 8 }),
  computeS: fc.integer({ min: 1, max: 4 }),
});
const rule: ChoiceRule = { leaveAboveS: 5, sloS: 5, fallback: 'less-loaded' };

/** The paper's rule, word by word: 0 or 1. */
function plain(pair: readonly [Candidate, Candidate]): number {
  const ttft = pair.map(({ queueS, computeS }) => queueS + computeS);
  const lessLoaded = pair[1].queueS < pair[0].queueS ? 1 : 0;
  if (pair[0].hitBlocks === pair[1].hitBlocks) return lessLoaded;
  const greaterReuse = pair[0].hitBlocks > pair[1].hitBlocks ? 0 : 1;
  return ttft[greaterReuse]! > rule.leaveAboveS ? lessLoaded : greaterReuse;
}

describe('takesFirst', () => {
  it('is the rule of the paper', () => {
    fc.assert(
      fc.property(candidates, candidates, (first, second) => {
        expect(takesFirst(first, second, rule)).toBe(plain([first, second]) === 0);
      }),
      { numRuns: 1000 },
    );
  });

  it('leaves for the smaller TTFT, or only for who meets the SLO, where told so', () => {
    const affine = { hitBlocks: 4, queueS: 5, computeS: 1 };
    const other = (queueS: number): Candidate => ({ hitBlocks: 0, queueS, computeS: 3 });
    const takes = (fallback: ChoiceRule['fallback'], queueS: number): boolean =>
      takesFirst(affine, other(queueS), { ...rule, fallback });
    expect(takes('less-loaded', 4)).toBe(false);
    expect(takes('smaller-ttft', 4)).toBe(true);
    expect(takes('smaller-ttft', 2.5)).toBe(false);
    expect(takes('other-if-slo', 4)).toBe(true);
    expect(takes('other-if-slo', 2)).toBe(false);
    // The released code leaves at half the SLO.
    const half = { ...rule, leaveAboveS: 2.5, fallback: 'smaller-ttft' } as const;
    expect(takesFirst({ hitBlocks: 4, queueS: 2, computeS: 1 }, { ...other(0), computeS: 2 }, half)).toBe(
      false,
    );
    expect(takesFirst({ hitBlocks: 4, queueS: 1, computeS: 1 }, { ...other(0), computeS: 1 }, half)).toBe(
      true,
    );
  });

  it('swaps with its candidates where they differ', () => {
    fc.assert(
      fc.property(
        candidates,
        candidates,
        fc.constantFrom('less-loaded', 'smaller-ttft', 'other-if-slo'),
        (first, second, fallback) => {
          fc.pre(
            first.queueS !== second.queueS &&
              first.queueS + first.computeS !== second.queueS + second.computeS,
          );
          const with_ = { ...rule, fallback } as ChoiceRule;
          expect(takesFirst(first, second, with_)).toBe(!takesFirst(second, first, with_));
        },
      ),
    );
  });
});
