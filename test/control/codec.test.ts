import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decodeMessage, encodeMessage } from '../../src/control/codec.js';

const leaf = fc.oneof(
  fc.string(),
  fc.integer(),
  fc.boolean(),
  fc.constant(null),
  fc.bigInt({ min: -(2n ** 70n), max: 2n ** 70n }),
  fc.uint8Array({ maxLength: 50 }),
  fc.uint32Array({ maxLength: 50 }),
);
const value = fc.letrec((tie) => ({
  any: fc.oneof(
    { maxDepth: 3 },
    leaf,
    fc.array(tie('any'), { maxLength: 4 }),
    fc.dictionary(fc.string({ unit: fc.constantFrom('a', 'b', 'key') }), tie('any'), {
      maxKeys: 4,
      noNullPrototype: true,
    }),
  ),
})).any;

describe('codec', () => {
  it('gives back what was encoded, arrays, bigints and all', () => {
    fc.assert(
      fc.property(value, (any) => {
        expect(decodeMessage(encodeMessage(any))).toEqual(any);
      }),
      { numRuns: 500 },
    );
  });

  it('carries slots as they are: 4 bytes each', () => {
    const slots = Uint32Array.from({ length: 10_000 }, (_, i) => i * 400_000);
    const bytes = encodeMessage({ slots });
    expect(bytes.length).toBeLessThan(4 * slots.length + 100);
    expect(decodeMessage(bytes)).toEqual({ slots });
  });

  it('refuses anything else with an error, never with wrong data or an exception of another kind', () => {
    fc.assert(
      fc.property(value, fc.nat(), fc.nat(255), fc.nat(400), (any, at, byte, length) => {
        const bytes = encodeMessage(any);
        bytes[at % bytes.length] = byte;
        for (const damaged of [bytes, bytes.subarray(0, length)]) {
          try {
            decodeMessage(damaged);
          } catch (error) {
            expect(error).toMatchObject({ code: 'INVALID_ARGUMENT' });
          }
        }
      }),
      { numRuns: 500 },
    );
  });

  it.each([
    ['{"$u32":[0,4]}', 'outside'],
    ['{"$u32":[-4,4]}', 'outside'],
    ['{"$u8":"x"}', 'outside'],
    ['{"$big":"1e9"}', 'bigint'],
    ['{', 'malformed'],
  ])('refuses %s', (json, why) => {
    const text = Buffer.from(json);
    const head = Buffer.alloc(4);
    head.writeUInt32LE(text.length);
    expect(() => decodeMessage(Buffer.concat([head, text, Buffer.alloc(-text.length & 3)]))).toThrow(why);
  });
});
