import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { frameBytes, frameKinds, FrameReader, type FrameKind } from '../../src/control/frame.js';

const kind = fc.constantFrom(...Object.values(frameKinds));
const frames = fc.array(fc.tuple(kind, fc.uint8Array({ maxLength: 300 })), { maxLength: 12 });

function bytesOf(all: readonly (readonly [FrameKind, Uint8Array])[]): Buffer {
  return Buffer.concat(all.flatMap(([of, body]) => frameBytes(of, body)));
}

describe('FrameReader', () => {
  it('gives the frames back however the bytes are cut', () => {
    fc.assert(
      fc.property(frames, fc.array(fc.nat(2000), { maxLength: 40 }), (all, cuts) => {
        const bytes = bytesOf(all);
        const reader = new FrameReader(300);
        const got: [FrameKind, Buffer][] = [];
        const places = [...cuts.map((cut) => cut % (bytes.length + 1)), bytes.length].sort((a, b) => a - b);
        let at = 0;
        for (const place of places) {
          reader.push(bytes.subarray(at, place));
          at = place;
          for (let frame = reader.next(); frame !== undefined; frame = reader.next()) {
            got.push([frame.kind, frame.body]);
          }
        }
        expect(got).toEqual(all.map(([of, body]) => [of, Buffer.from(body)]));
      }),
      { numRuns: 300 },
    );
  });

  it('refuses an oversized frame by its header, before its body comes', () => {
    const reader = new FrameReader(100);
    const [header] = frameBytes(frameKinds.message, new Uint8Array(101));
    reader.push(header);
    expect(() => reader.next()).toThrow('a frame of 101 bytes, the limit is 100');
  });

  it('refuses what is no frame at all, and never throws anything but its error', () => {
    const reader = new FrameReader(4096);
    reader.push(Buffer.from('GET / HTTP/1.1\r\n\r\n'));
    expect(() => reader.next()).toThrow('unknown kind 47');
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 1, maxLength: 64 }), (noise) => {
        const noisy = new FrameReader(64);
        noisy.push(Buffer.from(noise));
        try {
          while (noisy.next() !== undefined);
        } catch (error) {
          expect(error).toMatchObject({ code: 'INVALID_ARGUMENT' });
        }
      }),
      { numRuns: 300 },
    );
  });
});
