/** Descriptors that cannot be: refused at once, or by native code; the engine goes on either way. */
import { describe, expect, it } from 'vitest';
import type { Descriptor, LayersDescriptor, Wait } from '../../src/transfer/index.js';
import { errorOf, openEngine, plainMemory } from './support.js';

const copy: LayersDescriptor = {
  op: 'copy',
  from: 0,
  to: 1,
  fromSlots: 0,
  toSlots: 4,
  blocks: 4,
  firstBlock: 0,
  tokenBegin: 0,
  tokenEnd: 16,
  layers: 2,
};
const waits = (wait: Partial<Wait>): Descriptor => ({
  op: 'nop',
  waits: [{ counter: 0, value: 0, ...wait }],
});

describe('a value that does not fit its field', () => {
  it.each([
    ['an op of another kind', { op: 'teleport' } as unknown as Descriptor, /op is 'teleport'; one of nop, /],
    ['no steps', { op: 'nop', steps: 0 }, /steps is 0; a whole number from 1 to 65535/],
    ['too many steps', { op: 'nop', steps: 65_536 }, /steps is 65536/],
    ['half a step', { op: 'nop', steps: 1.5 }, /steps is 1.5/],
    ['a counter that is no number', waits({ counter: Number.NaN }), /counter of a wait is NaN/],
    ['a negative counter', waits({ counter: -1 }), /counter of a wait is -1/],
    ['a counter beyond 32 bits', waits({ counter: 2 ** 32 }), /counter of a wait is 4294967296/],
    ['a wide counter step', waits({ counterStep: 256 }), /counterStep of a wait is 256; .* 0 to 255/],
    ['a wide value step', waits({ valueStep: -1 }), /valueStep of a wait is -1/],
    ['a wide skip', waits({ skipSteps: 65_536 }), /skipSteps of a wait is 65536/],
    ['an unsafe value', waits({ value: 2 ** 53 }), /value is 9007199254740992/],
    ['a fraction', waits({ value: 0.5 }), /value is 0.5/],
    ['a third wait', { op: 'nop', waits: Array(3).fill({ counter: 0, value: 0 }) }, /number of waits is 3/],
    ['a third signal', { op: 'nop', signals: Array(3).fill({ counter: 0, value: 0 }) }, /number of signals/],
    [
      'a wide signal step',
      { op: 'nop', signals: [{ counter: 0, value: 0, counterStep: 256 }] },
      /counterStep of a signal is 256/,
    ],
    ['a list of NaN blocks', { ...copy, blocks: Number.NaN }, /blocks is NaN/],
    ['a negative token', { ...copy, tokenBegin: -1 }, /tokenBegin is -1/],
    ['a negative window', { ...copy, windowEnd: -1 }, /windowEnd is -1/],
    ['a wide first layer', { ...copy, firstLayer: 65_536 }, /firstLayer is 65536/],
  ] as [string, Descriptor, RegExp][])('%s', async (_what, descriptor, message) => {
    const engine = openEngine();
    const { room } = engine;
    const error = await errorOf(() => engine.submit([{ op: 'nop' }, descriptor]));
    expect(error.code).toBe('INVALID_ARGUMENT');
    expect(error.message).toMatch(message);
    expect(engine.room).toEqual(room); // nothing has been queued
    await engine.submit([{ op: 'nop' }]).done;
  });
});

describe('a descriptor that names what does not exist', () => {
  it.each([
    ['a counter', { op: 'nop', waits: [{ counter: 1 << 16, value: 0 }] }],
    [
      'a counter of a later step',
      { op: 'nop', steps: 3, waits: [{ counter: 65_534, counterStep: 1, value: 0 }] },
    ],
    ['a counter to signal', { op: 'bump', signals: [{ counter: 1 << 16, value: 1 }] }],
    ['a peer', { ...copy, op: 'send', peer: 0 }],
    ['no peer', { ...copy, op: 'send' }],
    ['a remote signal without a peer', { op: 'bump', signals: [{ counter: 0, value: 1, remote: true }] }],
    ['a geometry', { ...copy, from: 7 }],
    ['a geometry of another shape', { ...copy, to: 2 }],
    ['slots beyond the table', { ...copy, toSlots: (1 << 20) - 3 }],
    ['a slot beyond the geometry', { ...copy, fromSlots: 8 }],
    ['layers beyond the model', { ...copy, layers: 3 }],
    ['layers beyond the model from the second', { ...copy, firstLayer: 1 }],
    ['tokens outside of the blocks', { ...copy, tokenEnd: 17 }],
    ['tokens before the blocks', { ...copy, firstBlock: 1, tokenBegin: 3 }],
    ['tokens that end before they begin', { ...copy, tokenBegin: 9, tokenEnd: 8 }],
    ['a store that the engine does not have', { op: 'read', geometry: 0, keys: 0, slots: 0, blocks: 1 }],
    ['a store to write to', { op: 'write', geometry: 0, keys: 0, slots: 0, blocks: 1 }],
  ] as [string, Descriptor][])('%s', async (_what, descriptor) => {
    const engine = openEngine();
    engine.addGeometry(plainMemory(4).geometry);
    engine.addGeometry(plainMemory(4).geometry);
    const { geometry } = plainMemory(4);
    engine.addGeometry({ ...geometry, layers: geometry.layers.slice(1) });
    engine.setSlots(0, [0, 1, 2, 3, 3, 2, 1, 0, 4, 0, 0, 0]);
    const after = engine.takeCounters(1);
    const error = await errorOf(
      engine.submit([
        { op: 'nop' },
        descriptor,
        { op: 'nop', waits: [{ counter: after, value: 1 }] }, // never runs, and does not hold it up
      ]).done,
    );
    expect(error).toMatchObject({ code: 'INVALID_ARGUMENT', details: { descriptor: 1 } });
    const result = await engine.submit([copy]).done;
    expect(result.bytesMoved).toBe(4 * 128);
  });
});

describe('an entry of the ring that is used again', () => {
  it('keeps nothing of what it held', async () => {
    const engine = openEngine({ submissionEntries: 2, maxDescriptors: 2 });
    const peer = openEngine();
    const handle = engine.connect(peer.name);
    const signals = [0, 1].map((counter) => ({ counter, value: 1, remote: true }));
    const waits = [0, 1].map((counter) => ({ counter, value: 0, counterStep: 1, skipSteps: 9 }));
    for (let i = 0; i < 3; i++) {
      await engine.submit([{ op: 'bump', steps: 2, peer: handle, signals, waits }]).done;
      await engine.submit([{ op: 'nop' }]).done;
      await engine.submit([{ op: 'bump', signals: [{ counter: 9, value: 1 }], waits: [] }]).done;
    }
    expect([0, 1].map((counter) => peer.counter(counter))).toEqual([6, 6]);
    expect(engine.counter(9)).toBe(3);
  });
});
