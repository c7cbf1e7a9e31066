import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { memberRanges, SseLines, withMember, withoutMember } from '../../src/openai/index.js';

const objects = fc.dictionary(fc.string({ maxLength: 6 }), fc.jsonValue({ maxDepth: 3 }), { maxKeys: 6 });
const spaces = fc.constantFrom(undefined, 1, '\t');

describe('members of a JSON text', () => {
  it('are found as JSON.parse finds them, and taken out alone', () => {
    fc.assert(
      fc.property(objects, spaces, fc.string({ maxLength: 6 }), (value, space, name) => {
        const text = Buffer.from(JSON.stringify(value, null, space));
        expect(memberRanges(text).map((member) => member.name)).toEqual(
          Object.keys(JSON.parse(text.toString()) as object),
        );
        const without = JSON.parse(withoutMember(text, name).toString()) as Record<string, unknown>;
        const { [name]: _gone, ...rest } = JSON.parse(text.toString()) as Record<string, unknown>;
        expect(without).toEqual(rest);
        expect(JSON.parse(withMember(text, 'rank!', 3).toString())).toEqual({
          'rank!': 3,
          ...(JSON.parse(text.toString()) as object),
        });
      }),
    );
  });

  it('leave numbers beyond doubles as they are', () => {
    const text = Buffer.from('{"seed": 12345678901234567890, "data_parallel_rank": 1, "x": [1e400]}');
    expect(withoutMember(text, 'data_parallel_rank').toString()).toBe(
      '{"seed": 12345678901234567890,"x": [1e400]}',
    );
  });

  it('are taken out as often as they occur', () => {
    expect(withoutMember(Buffer.from('{"a":1,"b":2,"a":3}'), 'a').toString()).toBe('{"b":2}');
  });
});

describe('SseLines', () => {
  it('finds the same data however the bytes are cut', () => {
    const text = ': comment\ndata: {"a":"ä"}\r\n\r\nevent: x\ndata:two\n\ndata: [DONE]\n\n';
    const bytes = Buffer.from(text);
    fc.assert(
      fc.property(fc.array(fc.nat(bytes.length), { maxLength: 8 }), (cuts) => {
        const lines = new SseLines();
        const found: string[] = [];
        let from = 0;
        for (const to of [...cuts.sort((a, b) => a - b), bytes.length]) {
          lines.feed(bytes.subarray(from, to), (data) => found.push(data));
          from = to;
        }
        expect(found).toEqual(['{"a":"ä"}', 'two', '[DONE]']);
      }),
    );
  });

  it('forgets lines without an end', () => {
    const lines = new SseLines();
    const found: string[] = [];
    for (let i = 0; i < 40; i++) lines.feed(Buffer.alloc(64 * 1024, 'x'), (data) => found.push(data));
    lines.feed(Buffer.from('\ndata: next\n'), (data) => found.push(data));
    expect(found).toEqual(['next']);
  });
});
