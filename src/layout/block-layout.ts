/**
 * Where every byte of a Full Block lies (paper, section 4). The Layer Block of layer l is, for every group in order
 * that holds l, its planes in order, each `[blockTokens, bytesPerToken]`, concatenated. The Full Block is the Layer
 * Blocks of l = 0 .. layers-1, concatenated, so neither needs converting into the other.
 */
import { DualPathError } from '../errors/index.js';
import { integerArgument, show } from './check.js';
import { checkModel } from './model.js';
import type { KvGroup, KvPlane, ModelDescription } from './model.js';

export const blockLimits = {
  blockTokens: 65_536,
  shards: 65_536,
  /** A block lies within one arena slice, which is at most 1 GiB. */
  blockBytes: 2 ** 30,
} as const;

/** Which of `size` equal parts of the sharded groups this engine holds; `rank` is 0 .. size-1. */
export interface Shard {
  readonly rank: number;
  readonly size: number;
}

/** A plane within a Layer Block: `[blockTokens, bytesPerToken]` at `offsetBytes`. */
export interface PlacedPlane {
  /** Name of its group. */
  readonly group: string;
  /** Its name within the group. */
  readonly plane: string;
  /** From the start of the Layer Block. */
  readonly offsetBytes: number;
  /** Of this shard. */
  readonly bytesPerToken: number;
  /** 0: full attention. */
  readonly windowTokens: number;
}

interface PlacedLayer {
  readonly offsetBytes: number;
  readonly bytes: number;
  readonly windowTokens: number;
  readonly planes: readonly PlacedPlane[];
}

/** Made by `blockLayout`. Immutable. All sizes and offsets are bytes of this shard. */
export class BlockLayout {
  readonly model: ModelDescription;
  readonly blockTokens: number;
  readonly shard: Shard;
  readonly layers: number;
  /** Of all layers together. */
  readonly bytesPerToken: number;
  /** `blockTokens * bytesPerToken`. */
  readonly fullBlockBytes: number;
  readonly maxLayerBlockBytes: number;
  /**
   * Canonical text of everything that decides what the bytes of a block mean: model name, revision and dtype, every
   * group, plane and window, tokens per block, shard. Blocks may be exchanged if and only if identities are equal.
   * The shard counts only if a group is sharded, because without one all shards hold the same bytes.
   */
  readonly identity: string;
  readonly #layers: readonly PlacedLayer[];

  constructor(model: ModelDescription, blockTokens: number, shard: Shard) {
    this.model = model;
    this.blockTokens = blockTokens;
    this.shard = shard;
    this.layers = model.layers;
    this.#layers = placeLayers(model, blockTokens, shard);
    this.fullBlockBytes = total(this.#layers.map((layer) => layer.bytes));
    this.bytesPerToken = this.fullBlockBytes / blockTokens;
    this.maxLayerBlockBytes = Math.max(...this.#layers.map((layer) => layer.bytes));
    this.identity = identityOf(model, blockTokens, shard);
  }

  layerBlockBytes(layer: number): number {
    return this.#layer(layer).bytes;
  }

  /** Where the Layer Block of `layer` starts in the Full Block. */
  layerOffsetBytes(layer: number): number {
    return this.#layer(layer).offsetBytes;
  }

  planesOf(layer: number): readonly PlacedPlane[] {
    return this.#layer(layer).planes;
  }

  /** The widest window of the layer's planes in tokens, 0 if any has full attention. `planesOf` has each plane's. */
  windowTokensOf(layer: number): number {
    return this.#layer(layer).windowTokens;
  }

  /** Blocks that hold `tokens` tokens, a partial last one included. */
  blocksFor(tokens: number): number {
    return this.fullBlocksFor(tokens) + (tokens % this.blockTokens === 0 ? 0 : 1);
  }

  /** Blocks that `tokens` tokens fill entirely. */
  fullBlocksFor(tokens: number): number {
    integerArgument('tokens', tokens, 0, Number.MAX_SAFE_INTEGER);
    // Exact, where the floor of a rounded quotient need not be.
    return (tokens - (tokens % this.blockTokens)) / this.blockTokens;
  }

  #layer(layer: number): PlacedLayer {
    return this.#layers[integerArgument('layer', layer, 0, this.layers - 1)]!;
  }
}

/**
 * The layout of a model's blocks.
 * @param options.blockTokens - tokens per block, such as 64.
 * @param options.shard - the part of sharded groups that is held here; default: all of them.
 * @throws DualPathError INVALID_MODEL for an impossible model, INVALID_ARGUMENT for options that do not suit it.
 */
export function blockLayout(
  model: ModelDescription,
  options: { readonly blockTokens: number; readonly shard?: Shard },
): BlockLayout {
  checkModel(model);
  const blockTokens = integerArgument('blockTokens', options.blockTokens, 1, blockLimits.blockTokens);
  const size = integerArgument('shard.size', options.shard?.size ?? 1, 1, blockLimits.shards);
  const rank = integerArgument('shard.rank', options.shard?.rank ?? 0, 0, size - 1);
  // The layout must stay true whatever becomes of the caller's objects.
  return new BlockLayout(structuredClone(model), blockTokens, { rank, size });
}

function placeLayers(model: ModelDescription, blockTokens: number, shard: Shard): PlacedLayer[] {
  const groups = model.groups.map((group) => ({
    group,
    layers: new Set(group.layers),
    shares: group.planes.map((plane) => shareBytes(model, group, plane, shard.size)),
  }));
  // At most 2^52: the limits on layers, groups, planes and bytes per token multiply to that, so every sum is exact.
  const bytesPerToken = groups.reduce(
    (sum, { group, shares }) => sum + group.layers.length * total(shares),
    0,
  );
  checkBlockBytes(model, blockTokens, bytesPerToken);

  const placed: PlacedLayer[] = [];
  let offsetBytes = 0;
  for (let layer = 0; layer < model.layers; layer++) {
    const planes: PlacedPlane[] = [];
    let bytes = 0;
    for (const { group, shares } of groups.filter(({ layers }) => layers.has(layer))) {
      group.planes.forEach((plane, index) => {
        const share = shares[index]!;
        const { windowTokens } = group;
        planes.push({
          group: group.name,
          plane: plane.name,
          offsetBytes: bytes,
          bytesPerToken: share,
          windowTokens,
        });
        bytes += share * blockTokens;
      });
    }
    const windows = planes.map((plane) => plane.windowTokens);
    const windowTokens = windows.includes(0) ? 0 : Math.max(...windows);
    placed.push({ offsetBytes, bytes, windowTokens, planes });
    offsetBytes += bytes;
  }
  return placed;
}

function total(numbers: readonly number[]): number {
  return numbers.reduce((sum, number) => sum + number, 0);
}

function shareBytes(model: ModelDescription, group: KvGroup, plane: KvPlane, size: number): number {
  if (group.sharding === 'replicated') {
    return plane.bytesPerToken;
  }
  const [units, unit] =
    group.kvHeads === undefined ? [plane.bytesPerToken, 'bytes'] : [group.kvHeads, 'KV heads'];
  if (units % size !== 0) {
    const message =
      `model ${show(model.name)}: the ${units} ${unit} of plane ${show(plane.name)} of group ${show(group.name)} ` +
      `cannot be divided evenly over shard.size ${size}: pass a shard.size that divides ${units}, or declare the ` +
      `group "replicated"`;
    const details = {
      model: model.name,
      group: group.name,
      plane: plane.name,
      shard_size: size,
      divides: units,
    };
    throw new DualPathError('INVALID_ARGUMENT', message, details);
  }
  return plane.bytesPerToken / size;
}

function checkBlockBytes(model: ModelDescription, blockTokens: number, bytesPerToken: number): void {
  const limit = blockLimits.blockBytes;
  const most = Math.floor(limit / bytesPerToken);
  if (blockTokens <= most) {
    return;
  }
  const what = `model ${show(model.name)}: ${bytesPerToken} bytes per token`;
  const details = {
    model: model.name,
    bytes_per_token: bytesPerToken,
    block_tokens: blockTokens,
    limit_bytes: limit,
  };
  if (most === 0) {
    const message = `${what}, but a Full Block is at most ${limit} bytes: correct the sizes, or shard the model`;
    throw new DualPathError('INVALID_MODEL', message, details);
  }
  const message =
    `${what} and blockTokens ${blockTokens} make a Full Block above the limit of ${limit} bytes (an arena slice): ` +
    `pass a blockTokens of at most ${most}`;
  throw new DualPathError('INVALID_ARGUMENT', message, details);
}

function identityOf(model: ModelDescription, blockTokens: number, shard: Shard): string {
  const groups = model.groups.map((group) => [
    group.name,
    group.sharding,
    group.windowTokens,
    group.layers,
    group.planes.map((plane) => [plane.name, plane.bytesPerToken]),
  ]);
  const held = model.groups.some((group) => group.sharding === 'sharded') ? [shard.rank, shard.size] : [0, 1];
  // JSON arrays of fixed shape: no two different contents have the same text, whatever characters names contain.
  const { name, revision, dtype, layers } = model;
  return JSON.stringify(['dualpath-layout-1', name, revision, dtype, layers, groups, blockTokens, held]);
}
