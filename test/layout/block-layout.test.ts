import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isDualPathError } from '../../src/errors/index.js';
import { blockLayout, loadModel } from '../../src/layout/index.js';
import type { ModelDescription, Shard } from '../../src/layout/index.js';
import { anyCase } from './arbitrary.js';
import type { Case } from './arbitrary.js';

const tiny: ModelDescription = {
  name: 'tiny',
  revision: '1',
  dtype: 'float16',
  layers: 2,
  groups: [
    {
      name: 'gqa',
      layers: [0, 1],
      planes: [
        { name: 'k', bytesPerToken: 12 },
        { name: 'v', bytesPerToken: 6 },
      ],
      windowTokens: 0,
      sharding: 'sharded',
    },
    {
      name: 'extra',
      layers: [1],
      planes: [{ name: 'x', bytesPerToken: 5 }],
      windowTokens: 9,
      sharding: 'replicated',
    },
  ],
};

const layoutOf = ({ model, blockTokens, shard }: Case) => blockLayout(model, { blockTokens, shard });

function errorOf(action: () => unknown): { code: string; message: string } {
  try {
    action();
  } catch (error) {
    if (isDualPathError(error)) {
      return error;
    }
    throw error;
  }
  throw new Error('nothing was thrown');
}

describe('placing planes', () => {
  it('follows groups in order, then planes in order, then layers', () => {
    const layout = blockLayout(tiny, { blockTokens: 4, shard: { rank: 1, size: 3 } });
    expect(layout.planesOf(0)).toEqual([
      { group: 'gqa', plane: 'k', offsetBytes: 0, bytesPerToken: 4, windowTokens: 0 },
      { group: 'gqa', plane: 'v', offsetBytes: 16, bytesPerToken: 2, windowTokens: 0 },
    ]);
    expect(layout.planesOf(1).at(-1)).toEqual({
      group: 'extra',
      plane: 'x',
      offsetBytes: 24,
      bytesPerToken: 5,
      windowTokens: 9,
    });
    expect([layout.layerBlockBytes(0), layout.layerBlockBytes(1)]).toEqual([24, 44]);
    expect([layout.layerOffsetBytes(0), layout.layerOffsetBytes(1)]).toEqual([0, 24]);
    expect([layout.fullBlockBytes, layout.maxLayerBlockBytes, layout.bytesPerToken]).toEqual([68, 44, 17]);
  });

  it('tiles the Full Block exactly, without gap or overlap', () => {
    fc.assert(
      fc.property(anyCase, (one) => {
        const layout = layoutOf(one);
        const pieces = Array.from({ length: layout.layers }, (_, layer) =>
          layout.planesOf(layer).map((plane) => ({
            start: layout.layerOffsetBytes(layer) + plane.offsetBytes,
            bytes: plane.bytesPerToken * one.blockTokens,
            end: layout.layerOffsetBytes(layer) + layout.layerBlockBytes(layer),
          })),
        ).flat();
        let next = 0;
        for (const piece of [...pieces].sort((left, right) => left.start - right.start)) {
          expect(piece.start).toBe(next);
          next += piece.bytes;
          expect(next).toBeLessThanOrEqual(piece.end);
        }
        expect(next).toBe(layout.fullBlockBytes);
        expect(layout.fullBlockBytes).toBe(layout.bytesPerToken * one.blockTokens);
      }),
    );
  });

  it('has exactly the planes of the groups that hold the layer, with their share', () => {
    fc.assert(
      fc.property(anyCase, (one) => {
        const layout = layoutOf(one);
        for (let layer = 0; layer < one.model.layers; layer++) {
          const expected = one.model.groups
            .filter((group) => group.layers.includes(layer))
            .flatMap((group) =>
              group.planes.map((plane) => [
                group.name,
                plane.name,
                plane.bytesPerToken / (group.sharding === 'sharded' ? one.shard.size : 1),
                group.windowTokens,
              ]),
            );
          const placed = layout.planesOf(layer);
          expect(placed.map((at) => [at.group, at.plane, at.bytesPerToken, at.windowTokens])).toEqual(
            expected,
          );
          const windows = placed.map((at) => at.windowTokens);
          expect(layout.windowTokensOf(layer)).toBe(
            windows.some((window) => window === 0) ? 0 : Math.max(...windows),
          );
        }
      }),
    );
  });

  it('does not change when the caller changes the description afterwards', () => {
    const model = structuredClone(tiny);
    const layout = blockLayout(model, { blockTokens: 4 });
    (model.groups[0]!.planes[0] as { bytesPerToken: number }).bytesPerToken = 99;
    expect(layout.model).toEqual(tiny);
  });
});

describe('counting blocks', () => {
  it('rounds up and down exactly', () => {
    fc.assert(
      fc.property(fc.maxSafeNat(), fc.integer({ min: 1, max: 65_536 }), (tokens, blockTokens) => {
        const layout = blockLayout(loadModel('demo'), { blockTokens });
        const size = BigInt(blockTokens);
        expect(BigInt(layout.fullBlocksFor(tokens))).toBe(BigInt(tokens) / size);
        expect(BigInt(layout.blocksFor(tokens))).toBe((BigInt(tokens) + size - 1n) / size);
      }),
    );
  });

  it('refuses what is not a count', () => {
    const layout = blockLayout(tiny, { blockTokens: 4 });
    for (const tokens of [-1, 1.5, Number.NaN, 2 ** 53]) {
      const { code, message } = errorOf(() => layout.blocksFor(tokens));
      expect(code).toBe('INVALID_ARGUMENT');
      expect(message).toContain(`tokens is ${tokens}`);
    }
  });
});

describe('identity', () => {
  /** Every way to differ in one thing; undefined where the case has no such thing. */
  const changes: Record<string, (one: Case) => Case | undefined> = {
    name: (one) => withModel(one, { name: `${one.model.name}a` }),
    revision: (one) => withModel(one, { revision: `${one.model.revision}a` }),
    dtype: (one) => withModel(one, { dtype: `${one.model.dtype}a` }),
    'block tokens': (one) => ({ ...one, blockTokens: one.blockTokens + 1 }),
    'group order': (one) =>
      one.model.groups.length < 2 ? undefined : withModel(one, { groups: [...one.model.groups].reverse() }),
    'group name': (one) => withLastGroup(one, { name: 'other' }),
    window: (one) => withLastGroup(one, { windowTokens: lastGroup(one).windowTokens + 1 }),
    layers: (one) =>
      withModel(one, {
        layers: one.model.layers + 1,
        groups: one.model.groups.map((group, index, all) =>
          index === all.length - 1 ? { ...group, layers: [...group.layers, one.model.layers] } : group,
        ),
      }),
    'a layer of one group': (one) => {
      const first = one.model.groups[0]!;
      return one.model.groups.length < 2 || first.layers.length < 2
        ? undefined
        : withModel(one, {
            groups: [{ ...first, layers: first.layers.slice(1) }, ...one.model.groups.slice(1)],
          });
    },
    sharding: (one) =>
      lastGroup(one).sharding === 'sharded' ? withLastGroup(one, { sharding: 'replicated' }) : undefined,
    'plane name': (one) =>
      withLastGroup(one, {
        planes: lastGroup(one).planes.map((plane) => ({ ...plane, name: `${plane.name}z` })),
      }),
    'plane bytes': (one) =>
      withLastGroup(one, {
        planes: lastGroup(one).planes.map((plane) => ({ ...plane, bytesPerToken: plane.bytesPerToken * 2 })),
      }),
    'plane order': (one) =>
      lastGroup(one).planes.length < 2
        ? undefined
        : withLastGroup(one, { planes: [...lastGroup(one).planes].reverse() }),
    'shard rank': (one) =>
      one.shard.size < 2 || !isSharded(one)
        ? undefined
        : withShard(one, { rank: (one.shard.rank + 1) % one.shard.size }),
    'shard size': (one) =>
      one.shard.size < 2 || !isSharded(one) ? undefined : withShard(one, { rank: 0, size: 1 }),
  };
  const lastGroup = (one: Case) => one.model.groups.at(-1)!;
  const isSharded = (one: Case) => one.model.groups.some((group) => group.sharding === 'sharded');
  const withShard = (one: Case, shard: Partial<Shard>): Case => ({
    ...one,
    shard: { ...one.shard, ...shard },
  });
  const withModel = (one: Case, model: Partial<ModelDescription>): Case => ({
    ...one,
    model: { ...one.model, ...model },
  });
  const withLastGroup = (one: Case, group: Partial<ModelDescription['groups'][number]>): Case =>
    withModel(one, { groups: [...one.model.groups.slice(0, -1), { ...lastGroup(one), ...group }] });

  it.each(Object.entries(changes))('differs with %s', (_, change) => {
    let compared = 0;
    fc.assert(
      fc.property(anyCase, (one) => {
        const other = change(one);
        if (other !== undefined) {
          compared++;
          expect(layoutOf(other).identity).not.toBe(layoutOf(one).identity);
        }
      }),
    );
    expect(compared).toBeGreaterThan(10);
  });

  it('is the same for equal content', () => {
    fc.assert(
      fc.property(anyCase, (one) => {
        expect(layoutOf(structuredClone(one)).identity).toBe(layoutOf(one).identity);
      }),
    );
  });

  it('leaves the shard out where all shards hold the same bytes', () => {
    const model = loadModel('ds-v3.2-660b');
    const shard = (rank: number) =>
      blockLayout(model, { blockTokens: 64, shard: { rank, size: 8 } }).identity;
    expect(shard(3)).toBe(shard(0));
    expect(shard(3)).toBe(blockLayout(model, { blockTokens: 64 }).identity);
  });

  it('keeps its text: stores on disk are keyed by it', () => {
    expect(blockLayout(tiny, { blockTokens: 4, shard: { rank: 1, size: 3 } }).identity).toBe(
      '["dualpath-layout-1","tiny","1","float16",2,[["gqa","sharded",0,[0,1],[["k",12],["v",6]]],' +
        '["extra","replicated",9,[1],[["x",5]]]],4,[1,3]]',
    );
  });
});

describe('limits', () => {
  const gqa = tiny.groups[0]!;
  const huge = (bytesPerToken: number): ModelDescription => ({
    ...tiny,
    groups: [{ ...gqa, planes: [{ name: 'k', bytesPerToken }] }],
  });

  it('takes a Full Block of exactly 1 GiB and names the most tokens for a larger one', () => {
    expect(blockLayout(huge(2 ** 20), { blockTokens: 512 }).fullBlockBytes).toBe(2 ** 30);
    const { code, message } = errorOf(() => blockLayout(huge(2 ** 20), { blockTokens: 513 }));
    expect(code).toBe('INVALID_ARGUMENT');
    expect(message).toContain('blockTokens 513');
    expect(message).toContain('limit of 1073741824 bytes');
    expect(message).toContain('at most 512');
  });

  it('refuses a model of which not even one token fits', () => {
    const { code, message } = errorOf(() => blockLayout(huge(2 ** 30), { blockTokens: 1 }));
    expect(code).toBe('INVALID_MODEL');
    expect(message).toContain('2147483648 bytes per token');
  });

  it('stays exact at the largest model the limits allow', () => {
    const planes = Array.from({ length: 64 }, (_, index) => ({ name: `p${index}`, bytesPerToken: 2 ** 30 }));
    const layers = Array.from({ length: 1024 }, (_, layer) => layer);
    const groups = Array.from({ length: 64 }, (_, index) => ({ ...gqa, name: `g${index}`, layers, planes }));
    const { code, message } = errorOf(() =>
      blockLayout({ ...tiny, layers: 1024, groups }, { blockTokens: 1 }),
    );
    expect(code).toBe('INVALID_MODEL');
    expect(message).toContain(`${2n ** 52n} bytes per token`);
  });

  it('refuses an uneven shard, and less than a KV head', () => {
    const uneven = errorOf(() => blockLayout(tiny, { blockTokens: 4, shard: { rank: 0, size: 4 } }));
    expect(uneven.code).toBe('INVALID_ARGUMENT');
    expect(uneven.message).toContain('the 6 bytes of plane "v" of group "gqa"');
    expect(uneven.message).toContain('shard.size 4');
    const qwen = loadModel('qwen2.5-32b');
    expect(blockLayout(qwen, { blockTokens: 64, shard: { rank: 7, size: 8 } }).bytesPerToken).toBe(32_768);
    const split = errorOf(() => blockLayout(qwen, { blockTokens: 64, shard: { rank: 0, size: 16 } }));
    expect(split.message).toContain('8 KV heads');
  });

  it.each<[string, { blockTokens: number; shard?: Shard }]>([
    ['blockTokens is 0', { blockTokens: 0 }],
    ['blockTokens is 1.5', { blockTokens: 1.5 }],
    ['blockTokens is 65537', { blockTokens: 65_537 }],
    ['shard.size is 0', { blockTokens: 4, shard: { rank: 0, size: 0 } }],
    ['shard.rank is 2', { blockTokens: 4, shard: { rank: 2, size: 2 } }],
    ['shard.rank is -1', { blockTokens: 4, shard: { rank: -1, size: 2 } }],
  ])('refuses options: %s', (start, options) => {
    const { code, message } = errorOf(() => blockLayout(tiny, options));
    expect(code).toBe('INVALID_ARGUMENT');
    expect(message).toContain(start);
  });

  it('refuses a layer that is not there', () => {
    const layout = blockLayout(tiny, { blockTokens: 4 });
    for (const layer of [-1, 2, 0.5]) {
      expect(errorOf(() => layout.planesOf(layer)).message).toContain(`layer is ${layer}, outside 0 to 1`);
    }
  });
});
