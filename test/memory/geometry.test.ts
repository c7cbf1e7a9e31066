import { describe, expect, it } from 'vitest';
import { blockLayout, presets } from '../../src/layout/index.js';
import {
  Arena,
  bufferGeometry,
  sequenceGeometry,
  slotBytes,
  stagingGeometry,
} from '../../src/memory/index.js';
import type { NativeGeometry } from '../../src/binding/index.js';
import { errorOf, openEngine, plainMemory } from '../transfer/support.js';

const layout = blockLayout(
  presets.find((model) => model.name === 'demo-mla')!,
  { blockTokens: 8 },
);
const file = { fileBytes: 4 * 4096, headerBytes: 4096 };

/** [begin, end) of every plane of every slot and layer, in order. */
function places({ slots, slotStrideBytes, layers, blockTokens, offsetBytes }: NativeGeometry): number[][] {
  const all = Array.from({ length: slots }, (_, slot) =>
    layers.flatMap((layer, l) =>
      layer.planes.map((plane) => {
        const begin = offsetBytes + slot * slotStrideBytes + layer.offsetBytes + plane.offsetBytes;
        return [begin, begin + blockTokens * plane.bytesPerToken, l];
      }),
    ),
  ).flat();
  return all.sort((a, b) => a[0]! - b[0]!);
}

describe('geometries', () => {
  it.each([
    ['buffer', bufferGeometry(layout, file, 3, 'b')],
    ['staging that holds every layer', stagingGeometry(layout, 3, 4, 's')],
    ['staging asked for more layers than there are', stagingGeometry(layout, 3, 99, 's')],
    ['sequence', sequenceGeometry(layout, 3, 'h')],
  ])('%s: no two places overlap, all lie in the arena', (_name, geometry) => {
    const { bytes } = geometry.arena.facts();
    let end = 0;
    for (const [begin, stop] of places(geometry)) {
      expect(begin).toBeGreaterThanOrEqual(end);
      end = stop!;
    }
    expect(end).toBeLessThanOrEqual(bytes);
    expect(openEngine().addGeometry(geometry)).toBe(0);
  });

  it('staging of a window: a layer lies where the layer before the window lay', () => {
    const geometry = stagingGeometry(layout, 3, 2, 's');
    expect(geometry.layers[2]!.offsetBytes).toBe(geometry.layers[0]!.offsetBytes);
    expect(geometry.layers[3]!.offsetBytes).toBe(geometry.layers[1]!.offsetBytes);
    const [even, odd] = [0, 1].map((l) => places(geometry).filter(([, , layer]) => layer === l));
    expect(Math.max(...even!.map(([, end]) => end!))).toBeLessThanOrEqual(odd![0]![0]!);
    expect(geometry.arena.facts().bytes).toBe(3 * slotBytes.staging(layout, 2));
  });

  it('takes several arenas of one size for more than 1 GiB', async () => {
    const most = Math.floor(2 ** 30 / file.fileBytes);
    const geometry = bufferGeometry(layout, file, most + 1, 'pe/buffer');
    expect(geometry.slotsPerArena).toBe(Math.ceil((most + 1) / 2));
    expect(geometry.moreArenas).toHaveLength(1);
    for (const arena of [geometry.arena, ...geometry.moreArenas!]) {
      expect(arena.facts().bytes).toBe(geometry.slotsPerArena! * file.fileBytes);
    }
    expect(openEngine().addGeometry(geometry)).toBe(0);
  });

  it('copies between slots of different arenas', async () => {
    // The same slots, once in one arena and once in three.
    const layers = sequenceGeometry(layout, 1, 'x').layers;
    const slotStrideBytes = slotBytes.sequence(layout);
    const arenaOf = (slots: number): Arena => new Arena({ name: 'a', bytes: slots * slotStrideBytes });
    const common = { offsetBytes: 0, slotStrideBytes, slots: 5, blockTokens: layout.blockTokens, layers };
    const whole = arenaOf(5);
    const thirds = [arenaOf(2), arenaOf(2), arenaOf(2)];
    const engine = openEngine();
    const from = engine.addGeometry({ ...common, arena: whole.handle });
    const [arena, ...moreArenas] = thirds.map(({ handle }) => handle);
    const to = engine.addGeometry({ ...common, arena: arena!, moreArenas, slotsPerArena: 2 });
    const bytes = new Uint8Array(whole.buffer);
    for (let i = 0; i < bytes.length; i++) bytes[i] = (i * 131) % 251;
    const list = engine.slotTable.take(5);
    engine.setSlots(list, [0, 1, 2, 3, 4]);
    await engine.submit([
      {
        op: 'copy',
        from,
        to,
        fromSlots: list,
        toSlots: list,
        blocks: 5,
        firstBlock: 0,
        tokenBegin: 0,
        tokenEnd: 5 * layout.blockTokens,
        layers: layout.layers,
      },
    ]).done;
    for (let slot = 0; slot < 5; slot++) {
      const start = (slot % 2) * slotStrideBytes;
      const copied = new Uint8Array(thirds[Math.floor(slot / 2)]!.buffer, start, layout.fullBlockBytes);
      const original = bytes.subarray(slot * slotStrideBytes, slot * slotStrideBytes + layout.fullBlockBytes);
      expect(Buffer.compare(copied, original)).toBe(0);
    }
    expect(() => engine.addGeometry({ ...common, arena: arena!, moreArenas, slotsPerArena: 3 })).toThrowError(
      /2 arenas are needed, 3 given/,
    );
  });

  it('refuses impossible numbers of blocks, and more than the machine has', async () => {
    expect((await errorOf(() => bufferGeometry(layout, file, 2 ** 26, 'huge'))).code).toBe('MEMORY_LIMIT');
    for (const slots of [0, -1, 0.5, Number.NaN]) {
      expect((await errorOf(() => stagingGeometry(layout, slots, 2, 's'))).code).toBe('INVALID_ARGUMENT');
      expect((await errorOf(() => sequenceGeometry(layout, slots, 'h'))).code).toBe('INVALID_ARGUMENT');
    }
  });

  it.each([
    ['slots beyond the arena', { slots: 5 }],
    ['an offset beyond the arena', { offsetBytes: 1 }],
    ['no layers', { layers: [] }],
    ['a plane of nothing', { layers: [{ offsetBytes: 0, planes: [{ offsetBytes: 0, bytesPerToken: 0 }] }] }],
    ['a layer without planes', { layers: [{ offsetBytes: 0, planes: [] }] }],
    ['no tokens', { blockTokens: 0 }],
    ['a fraction of a slot', { slots: 0.5 }],
    [
      'overlapping tokens',
      { layers: [{ offsetBytes: 0, planes: [{ offsetBytes: 0, bytesPerToken: 16, tokenStrideBytes: 8 }] }] },
    ],
  ] as [string, Partial<NativeGeometry>][])('%s: an adopted geometry is refused', async (_what, wrong) => {
    const { geometry } = plainMemory(4);
    const error = await errorOf(() => openEngine().addGeometry({ ...geometry, ...wrong }));
    expect(error.code).toBe('INVALID_ARGUMENT');
  });
});
