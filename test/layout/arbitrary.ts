import fc from 'fast-check';
import type { KvGroup, ModelDescription, Shard } from '../../src/layout/index.js';

/** Runs of a test repeat exactly. */
fc.configureGlobal({ seed: 20_260_216 });

export interface Case {
  readonly model: ModelDescription;
  readonly blockTokens: number;
  readonly shard: Shard;
}

const shard = fc
  .integer({ min: 1, max: 8 })
  .chain((size) => fc.record({ rank: fc.integer({ min: 0, max: size - 1 }), size: fc.constant(size) }));

/** Names from the characters that JSON escapes and that a careless identity would use as separators. */
const name = fc.string({
  unit: fc.constantFrom('a', 'b', '"', ',', '[', '|', '\\', 'é'),
  minLength: 1,
  maxLength: 4,
});

function group(groupName: string, layerCount: number, shards: number): fc.Arbitrary<KvGroup> {
  const layerIndex = fc.integer({ min: 0, max: layerCount - 1 });
  return fc
    .record({
      layers: fc.uniqueArray(layerIndex, { minLength: 1 }),
      planes: fc.uniqueArray(fc.record({ name, units: fc.integer({ min: 1, max: 700 }) }), {
        selector: (plane) => plane.name,
        minLength: 1,
        maxLength: 3,
      }),
      windowTokens: fc.oneof(fc.constant(0), fc.integer({ min: 1, max: 300 })),
      sharding: fc.constantFrom('replicated', 'sharded'),
    })
    .map(({ layers, planes, ...rest }) => ({
      ...rest,
      name: groupName,
      layers: layers.sort((left, right) => left - right),
      planes: planes.map((plane) => ({
        name: plane.name,
        bytesPerToken: plane.units * (rest.sharding === 'sharded' ? shards : 1),
      })),
    }));
}

function model(shards: number): fc.Arbitrary<ModelDescription> {
  return fc.integer({ min: 1, max: 12 }).chain((layers) =>
    fc
      .record({
        name,
        revision: name,
        dtype: name,
        layers: fc.constant(layers),
        // Up to three groups over some layers, then one over all, so that every layer is held.
        some: fc
          .uniqueArray(name, { maxLength: 3 })
          .chain((names) => fc.tuple(...names.map((groupName) => group(groupName, layers, shards)))),
        everywhere: group('everywhere', layers, shards),
      })
      .map(({ some, everywhere, ...rest }) => ({
        ...rest,
        groups: [...some, { ...everywhere, layers: Array.from({ length: layers }, (_, layer) => layer) }],
      })),
  );
}

/** A possible model with a shard that divides it. */
export const anyCase: fc.Arbitrary<Case> = shard.chain((held) =>
  fc.record({
    model: model(held.size),
    blockTokens: fc.integer({ min: 1, max: 130 }),
    shard: fc.constant(held),
  }),
);
