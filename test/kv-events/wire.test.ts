import { encode } from '@msgpack/msgpack';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decodeBatch } from '../../src/kv-events/index.js';
import { batch, stored } from './support.js';

describe('KV events on the wire', () => {
  it('reads blocks from lists and from maps, with hashes as bytes and as integers', () => {
    const whole = { lora_id: null };
    const list = decodeBatch(
      batch([stored([2n ** 63n + 1n, -5], null, [1, 2, 3, 4], 2, whole, 'list')], 'list'),
    );
    const map = decodeBatch(batch([stored([Buffer.from('a'), Buffer.from('b')], 7, [1, 2, 3, 4], 2)]));
    expect(list).toEqual([
      {
        type: 'stored',
        hashes: [`i${2n ** 63n + 1n}`, 'i-5'],
        parent: null,
        ids: Uint32Array.of(1, 2, 3, 4),
        blockTokens: 2,
        plainBlocks: 2,
        group: null,
        kind: null,
      },
    ]);
    expect(map).toMatchObject([{ hashes: ['a', 'b'], parent: 'i7', plainBlocks: 2 }]);
  });

  it('reads what is removed and cleared, in both forms', () => {
    expect(
      decodeBatch(
        batch([['BlockRemoved', [1]], ['AllBlocksCleared'], { type: 'BlockRemoved', block_hashes: [2, 3] }]),
      ),
    ).toEqual([
      { type: 'removed', hashes: ['i1'], remaining: null, group: null },
      { type: 'cleared' },
      { type: 'removed', hashes: ['i2', 'i3'], remaining: null, group: null },
    ]);
  });

  it('tells blocks that depend on more than ids', () => {
    const event = (rest: object): unknown => stored([1, 2, 3], null, [1, 2, 3], 1, { ...rest });
    const plain = (rest: object): unknown =>
      decodeBatch(batch([event(rest)])).map((each) => each.type === 'stored' && each.plainBlocks);
    expect(plain({ extra_keys: [null, null, null] })).toEqual([3]);
    expect(plain({ extra_keys: [null, ['image'], null] })).toEqual([1]);
    expect(plain({ extra_keys: [['salt'], null, null] })).toEqual([0]);
    expect(plain({ lora_name: 'adapter' })).toEqual([0]);
    expect(plain({ lora_id: 1 })).toEqual([0]);
  });

  it('leaves out other kinds of events and blocks in host memory', () => {
    const other = [
      { type: 'BlockSnapshot', blocks: [] },
      stored([1], null, [1], 1, { medium: 'CPU' }),
      { type: 'BlockRemoved', block_hashes: [1], medium: 'CPU' },
    ];
    expect(decodeBatch(batch(other))).toEqual([]);
  });

  it.each([
    ['no batch', encode('hello')],
    ['null', encode(null)],
    ['no events', encode([1.5])],
    ['an event that is a number', batch([3])],
    ['ids that do not fit', batch([stored([1, 2], null, [1, 2, 3], 2)])],
    ['blocks of no tokens', batch([stored([], null, [], 0)])],
    ['a negative id', batch([stored([1], null, [-1], 1)])],
    ['a hash that is text', batch([stored(['x'], null, [1], 1)])],
    ['cut short', batch([stored([1], null, [1], 1)]).subarray(0, 20)],
  ])('refuses %s', (_, payload) => {
    expect(() => decodeBatch(payload)).toThrow();
  });

  it('throws or returns a list, whatever the bytes', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        try {
          expect(Array.isArray(decodeBatch(bytes))).toBe(true);
        } catch (error) {
          expect(error).toBeInstanceOf(Error);
        }
      }),
    );
  });
});
