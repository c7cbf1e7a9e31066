import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { firstVisibleBlock, windowFirstToken } from '../../src/layout/index.js';

fc.configureGlobal({ seed: 20_260_216 });

/** Token by token: a query sees token t if fewer than `window` tokens lie from t up to and including the query. */
function sees(query: number, token: number, window: number): boolean {
  return token <= query && (window === 0 || query - token < window);
}

describe('sliding windows', () => {
  it.each([
    // [window, end, first token, first block of 64]
    [0, 1000, 0, 0],
    [128, 0, 0, 0],
    [128, 127, 0, 0],
    [128, 128, 1, 0],
    [128, 191, 64, 1],
    [128, 1000, 873, 13],
    [1, 64, 64, 1],
  ])('window %i at %i sees from token %i, block %i', (window, end, token, block) => {
    expect(windowFirstToken(window, end)).toBe(token);
    expect(firstVisibleBlock(window, end, 64)).toBe(block);
  });

  it('agrees with a token-by-token transcription', () => {
    const small = fc.nat({ max: 120 });
    fc.assert(
      fc.property(small, small, fc.integer({ min: 1, max: 40 }), (window, end, blockTokens) => {
        const visible = Array.from({ length: end + 1 }, (_, token) => token).filter((token) =>
          sees(end, token, window),
        );
        expect(windowFirstToken(window, end)).toBe(visible[0]);
        expect(firstVisibleBlock(window, end, blockTokens)).toBe(Math.floor(visible[0]! / blockTokens));
      }),
    );
  });

  it('hides nothing that a later query sees', () => {
    const small = fc.nat({ max: 120 });
    fc.assert(
      fc.property(small, small, small, (window, end, later) => {
        const skipped = Array.from({ length: windowFirstToken(window, end) }, (_, token) => token);
        expect(skipped.some((token) => sees(end + later, token, window))).toBe(false);
      }),
    );
  });

  it('refuses negative, fractional and unsafe numbers', () => {
    expect(() => windowFirstToken(-1, 0)).toThrow('windowTokens is -1');
    expect(() => windowFirstToken(2 ** 32, 0)).toThrow('windowTokens is 4294967296');
    expect(() => windowFirstToken(0, 2 ** 53)).toThrow('endToken is 9007199254740992');
    expect(() => firstVisibleBlock(0, 0, 0)).toThrow('blockTokens is 0');
    expect(() => firstVisibleBlock(0, 0, 2.5)).toThrow('blockTokens is 2.5');
  });
});
