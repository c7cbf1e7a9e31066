import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Gathered, LargeMemory, leastBytes } from '../../src/proxy/large-memory.js';

const mebi = 1 << 20;

describe('a body that is gathered', () => {
  it('is what came, whatever memory held before', () => {
    const large = new LargeMemory();
    const pieces = fc.array(fc.integer({ min: 0, max: mebi }), { maxLength: 8 });
    fc.assert(
      fc.property(pieces, fc.integer({ min: 1, max: 255 }), (sizes, first) => {
        const body = new Gathered(large);
        const came = sizes.map((bytes, i) => Buffer.alloc(bytes, first + i));
        for (const piece of came) body.add(piece);
        const whole = body.whole();
        expect(whole.equals(Buffer.concat(came))).toBe(true);
        large.give(whole.buffer);
      }),
      { numRuns: 50 },
    );
  });

  it('gives back what it has outgrown, and all of it when it is dropped', () => {
    const large = new LargeMemory();
    const body = new Gathered(large);
    body.add(Buffer.alloc(mebi));
    const first = body.whole().buffer;
    body.add(Buffer.alloc(1));
    expect(large.take(leastBytes)).toBe(first);
    const second = body.whole().buffer;
    expect(second.byteLength).toBe(2 * mebi);
    body.drop();
    expect(large.take(2 * mebi)).toBe(second);
  });
});

describe('memory of large bodies', () => {
  it('is kept up to a limit, and other memory not at all', () => {
    const large = new LargeMemory();
    const given = Array.from({ length: 5 }, () => large.take(16 * mebi));
    for (const memory of given) large.give(memory);
    const taken = Array.from({ length: 5 }, () => large.take(16 * mebi));
    expect(taken.filter((memory) => given.includes(memory))).toHaveLength(4);
    const small = new ArrayBuffer(leastBytes / 2);
    const odd = new ArrayBuffer(leastBytes + 8);
    for (const memory of [small, odd]) large.give(memory);
    expect(large.take(leastBytes)).not.toBe(odd);
  });
});
