/** What an engine author has: a store, a TrafficManager, paged KV memory of the engine's own. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import type { NativeGeometry } from '../../src/binding/index.js';
import { blockLayout, presets, type BlockLayout, type ModelDescription } from '../../src/layout/index.js';
import { Arena } from '../../src/memory/index.js';
import { BlockStore } from '../../src/storage/index.js';
import { TrafficManager, type KeyChain, type TrafficManagerOptions } from '../../src/traffic/index.js';
import { openRuntime } from '../transfer/support.js';

export { errorOf, openRuntime, sleep, turn } from '../transfer/support.js';

let named = 0;

/** Removed when the test has ended, or whenever `then` says. */
export function scratchDirectory(then: (remove: () => void) => void = onTestFinished): string {
  const path = mkdtempSync(join(tmpdir(), 'dualpath-test-'));
  then(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

/** 2 heads of K and V, a plane each, so that NHD and HND memory are geometries of it. */
export const headsModel = (layers = 3): ModelDescription => ({
  name: 'heads',
  revision: '1',
  dtype: 'test',
  layers,
  groups: [
    {
      name: 'kv',
      layers: Array.from({ length: layers }, (_, layer) => layer),
      planes: ['k0', 'k1', 'v0', 'v1'].map((name) => ({ name, bytesPerToken: 24 })),
      windowTokens: 0,
      sharding: 'replicated',
    },
  ],
});

export const preset = (name: string): ModelDescription => presets.find((model) => model.name === name)!;

export const headsLayout = (layers = 3): BlockLayout => blockLayout(headsModel(layers), { blockTokens: 4 });

/** Opens a manager with a runtime of its own. */
export function openManager(
  layout: BlockLayout,
  path: string,
  options: Partial<TrafficManagerOptions> = {},
): TrafficManager {
  const store = options.store ?? BlockStore.open({ path: join(path, 'store'), layout });
  const manager = new TrafficManager({
    name: `manager-${named++}`,
    layout,
    store,
    bufferBlocks: 16,
    maxTokens: 4096,
    ...options,
    runtime: options.runtime ?? openRuntime(),
  });
  onTestFinished(() => manager.close());
  return manager;
}

export function tokens(count: number, seed = 1): Uint32Array {
  return Uint32Array.from({ length: count }, (_, i) => Math.imul(i + 1, 2654435761) ^ seed);
}

/**
 * An engine's memory, a region for each layer:
 * nhd: [slots, tokens, planes], hnd: [slots, planes, tokens]; both with gaps that nobody may write.
 */
export class PagedMemory {
  readonly geometry: NativeGeometry;
  readonly bytes: Uint8Array;
  static readonly untouched = 0xee;

  constructor(layout: BlockLayout, slots: number, order: 'nhd' | 'hnd') {
    const { blockTokens } = layout;
    const gap = 8;
    const rowBytes = (layer: number): number =>
      layout.planesOf(layer).reduce((sum, plane) => sum + plane.bytesPerToken, 0) + gap;
    const widest = Math.max(...Array.from({ length: layout.layers }, (_, layer) => rowBytes(layer)));
    const slotStrideBytes = (widest + gap * 8) * blockTokens;
    const arena = new Arena({
      name: order,
      bytes: slotStrideBytes * slots * layout.layers,
      hugePages: false,
      lock: 'none',
    });
    const layers = Array.from({ length: layout.layers }, (_, layer) => {
      let before = 0;
      const planes = layout.planesOf(layer).map(({ bytesPerToken, windowTokens }) => {
        const place =
          order === 'nhd'
            ? { offsetBytes: before, tokenStrideBytes: rowBytes(layer) }
            : { offsetBytes: before * blockTokens, tokenStrideBytes: bytesPerToken };
        before += order === 'nhd' ? bytesPerToken : bytesPerToken + gap;
        return { ...place, bytesPerToken, windowTokens };
      });
      return { offsetBytes: layer * slots * slotStrideBytes, planes };
    });
    this.geometry = { arena: arena.handle, offsetBytes: 0, slotStrideBytes, slots, blockTokens, layers };
    this.bytes = new Uint8Array(arena.buffer);
    this.bytes.fill(PagedMemory.untouched);
  }

  /** Writes the KV of tokens [0, tokens) of a sequence, into `bytes` or an image of them. */
  write(blockTable: readonly number[], tokens: number, seed: number, bytes = this.bytes): Uint8Array {
    const { blockTokens, slotStrideBytes, layers } = this.geometry;
    layers.forEach((layer, l) => {
      layer.planes.forEach((plane, p) => {
        for (let token = 0; token < tokens; token++) {
          const slot = blockTable[Math.floor(token / blockTokens)]!;
          const at =
            slot * slotStrideBytes +
            layer.offsetBytes +
            plane.offsetBytes +
            (token % blockTokens) * (plane.tokenStrideBytes ?? plane.bytesPerToken);
          for (let i = 0; i < plane.bytesPerToken; i++) bytes[at + i] = kvByte(seed, l, p, token, i);
        }
      });
    });
    return bytes;
  }

  /** All bytes as they should be when tokens [0, tokens) are there and nothing else is. */
  expected(blockTable: readonly number[], tokens: number, seed: number): Uint8Array {
    return this.write(
      blockTable,
      tokens,
      seed,
      new Uint8Array(this.bytes.length).fill(PagedMemory.untouched),
    );
  }

  /** Index of the first byte that is not as expected, or -1. */
  firstDifference(blockTable: readonly number[], tokens: number, seed: number): number {
    const expected = this.expected(blockTable, tokens, seed);
    return Buffer.compare(this.bytes, expected) === 0
      ? -1
      : this.bytes.findIndex((b, i) => b !== expected[i]);
  }
}

export function kvByte(seed: number, layer: number, plane: number, token: number, i: number): number {
  let x = Math.imul(seed + 1, 0x9e3779b1) ^ Math.imul(layer * 64 + plane + 1, 0x85ebca6b);
  x = Math.imul(x ^ (token * 256 + i), 0xc2b2ae35);
  return (x ^ (x >>> 15)) & 0xff;
}

/** A block table that is neither in order nor without holes. */
export const scattered = (blocks: number, first = 0): number[] =>
  Array.from({ length: blocks }, (_, i) => first + ((i * 7 + 3) % (2 * blocks + 1)));

/** Saves the full blocks of a sequence out of new memory; returns its chain. */
export async function saveSequence(
  manager: TrafficManager,
  sequence: Uint32Array,
  seed: number,
): Promise<KeyChain> {
  const blocks = manager.layout.fullBlocksFor(sequence.length);
  const memory = new PagedMemory(manager.layout, blocks + 1, 'nhd');
  const blockTable = Array.from({ length: blocks }, (_, i) => i);
  memory.write(blockTable, blocks * manager.layout.blockTokens, seed);
  const chain = await manager.hash(sequence);
  const geometry = manager.adopt(memory.geometry);
  await manager.save({ chain, firstBlock: 0, blocks, geometry, blockTable }).done;
  return chain;
}
