import fc from 'fast-check';
import { expect, it } from 'vitest';
import { DecodeEngine } from '../../src/simulator/decode-engine.js';

const sequence = fc.record({
  gapS: fc.double({ min: 0, max: 2, noNaN: true }),
  steps: fc.integer({ min: 1, max: 50 }),
  tokens: fc.integer({ min: 1, max: 1000 }),
});

it('ends sequences as stepping through them would', () => {
  const stepS = (sequences: number, tokens: number): number => 0.01 + 0.002 * sequences + 1e-6 * tokens;
  fc.assert(
    fc.property(fc.array(sequence, { minLength: 1, maxLength: 20 }), (sequences) => {
      const engine = new DecodeEngine(stepS);
      const ends = new Map<number, number>();
      const plain: { owner: number; left: number; tokens: number }[] = [];
      const plainEnds = new Map<number, number>();
      let nowS = 0;
      let plainS = 0;
      const plainUntil = (untilS: number): void => {
        while (plain.length > 0 && plainS < untilS) {
          const step = stepS(
            plain.length,
            plain.reduce((sum, { tokens }) => sum + tokens, 0),
          );
          const left = Math.min(...plain.map((each) => each.left));
          const toS = Math.min(untilS, plainS + left * step);
          for (const each of plain) each.left -= (toS - plainS) / step;
          plainS = toS;
          for (let place = plain.length - 1; place >= 0; place--) {
            if (plain[place]!.left > 1e-9) continue;
            plainEnds.set(plain[place]!.owner, plainS);
            plain.splice(place, 1);
          }
        }
        plainS = Math.max(plainS, Math.min(untilS, 1e9));
      };
      const until = (untilS: number): void => {
        for (let endS = engine.nextEndS(); endS <= untilS; endS = engine.nextEndS())
          ends.set(engine.leave(endS), endS);
      };
      for (const [owner, { gapS, steps, tokens }] of sequences.entries()) {
        nowS += gapS;
        until(nowS);
        plainUntil(nowS);
        engine.join(nowS, owner, steps, tokens);
        plain.push({ owner, left: steps, tokens });
      }
      until(1e9);
      plainUntil(1e9);
      expect(ends.size).toBe(sequences.length);
      for (const [owner, endS] of ends) expect(endS).toBeCloseTo(plainEnds.get(owner)!, 5);
    }),
    { numRuns: 100 },
  );
});
