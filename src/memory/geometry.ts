/** Where blocks lie in a region: three layouts of our own; an engine's paged memory is a fourth, adopted. */
import { freemem } from 'node:os';
import type { NativeGeometry } from '../binding/index.js';
import { DualPathError } from '../errors/index.js';
import type { BlockLayout } from '../layout/index.js';
import { Arena } from './arena.js';

const cacheLine = 64;
const roundUp = (value: number, unit: number): number => Math.ceil(value / unit) * unit;

/** What an arena holds at most: io_uring registers no more as one buffer. */
const maxArenaBytes = 2 ** 30;
const maxSlots = 2 ** 26; // entries of the largest slot table

/** The memory part of a geometry: as few arenas as hold the slots, all of one size. */
function memory(
  slots: number,
  bytesPerSlot: number,
  name: string,
  emulatedHbm: boolean,
  shared: boolean,
): Pick<NativeGeometry, 'arena' | 'moreArenas' | 'slots'> & { readonly slotsPerArena: number } {
  const most = Math.floor(maxArenaBytes / bytesPerSlot);
  if (!Number.isSafeInteger(slots) || slots < 1 || slots > maxSlots || most < 1) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `'${name}': ${slots} blocks of ${bytesPerSlot} bytes; 1 to ${maxSlots} blocks of at most ${maxArenaBytes} ` +
        'bytes are possible: ask for as many, or choose a smaller block size',
      { name, blocks: String(slots), block_bytes: bytesPerSlot, limit_blocks: maxSlots },
    );
  }
  const available = freemem();
  if (slots * bytesPerSlot > available) {
    throw new DualPathError(
      'MEMORY_LIMIT',
      `'${name}': ${slots} blocks of ${bytesPerSlot} bytes, ${available} bytes are available on this machine; ask for fewer`,
      { name, blocks: slots, block_bytes: bytesPerSlot, available_bytes: available },
    );
  }
  const count = Math.ceil(slots / most);
  const slotsPerArena = Math.ceil(slots / count);
  const bytes = slotsPerArena * bytesPerSlot;
  const arenas = Array.from(
    { length: count },
    (_, k) => new Arena({ name: count === 1 ? name : `${name}/${k}`, bytes, emulatedHbm, shared }).handle,
  );
  const [arena, ...moreArenas] = arenas;
  return { arena: arena!, moreArenas, slots, slotsPerArena };
}

type Layers = NativeGeometry['layers'];

function layersOf(layout: BlockLayout, offsetOf: (layer: number) => number): Layers {
  return Array.from({ length: layout.layers }, (_, layer) => ({
    offsetBytes: offsetOf(layer),
    planes: layout.planesOf(layer).map((plane) => ({
      offsetBytes: plane.offsetBytes,
      bytesPerToken: plane.bytesPerToken,
      windowTokens: plane.windowTokens,
    })),
  }));
}

/** Bytes of one slot of each kind of memory, for sizing. */
export const slotBytes = {
  buffer: (fileBytes: number): number => fileBytes,
  staging: (layout: BlockLayout, windowLayers: number): number =>
    roundUp(layout.maxLayerBlockBytes, cacheLine) * Math.min(windowLayers, layout.layers),
  sequence: (layout: BlockLayout): number => roundUp(layout.fullBlockBytes, cacheLine),
};

/** PE or DE buffer: block files as they are stored, header page first, so that O_DIRECT reads land in place. */
export function bufferGeometry(
  layout: BlockLayout,
  file: { readonly fileBytes: number; readonly headerBytes: number },
  slots: number,
  name: string,
  shared = false,
): NativeGeometry {
  return {
    ...memory(slots, file.fileBytes, name, false, shared),
    offsetBytes: 0,
    slotStrideBytes: file.fileBytes,
    blockTokens: layout.blockTokens,
    layers: layersOf(layout, (layer) => file.headerBytes + layout.layerOffsetBytes(layer)),
  };
}

/**
 * PE HBM for layerwise prefill: a slot holds one Layer Block; layer l lies in part l mod windowLayers, so a
 * layer's HBM is used again windowLayers layers later (paper, section 4, layerwise prefill). With
 * windowLayers = layers it holds whole prompts, as prefill without layerwise transfer needs.
 */
export function stagingGeometry(
  layout: BlockLayout,
  slots: number,
  windowLayers: number,
  name: string,
  shared = false,
): NativeGeometry {
  const stride = roundUp(layout.maxLayerBlockBytes, cacheLine);
  const window = Math.min(windowLayers, layout.layers);
  const held = memory(slots, stride * window, name, true, shared);
  return {
    ...held,
    offsetBytes: 0,
    slotStrideBytes: stride,
    blockTokens: layout.blockTokens,
    layers: layersOf(layout, (layer) => (layer % window) * stride * held.slotsPerArena),
  };
}

/**
 * PE or DE HBM of an engine without page tables: for each layer of the window a matrix [tokens, row bytes], a token's planes
 * side by side in its row. Neighbouring slots are neighbouring rows, so a sequence whose slots follow each other is one
 * matrix a layer. Without a window smaller than all layers it holds whole sequences.
 * @throws INVALID_ARGUMENT when it does not fit into one arena (1 GiB), MEMORY_LIMIT
 */
export function contiguousGeometry(
  layout: BlockLayout,
  slots: number,
  windowLayers: number,
  name: string,
  shared = false,
): NativeGeometry {
  const { blockTokens } = layout;
  const stride = layout.maxLayerBlockBytes;
  const window = Math.min(windowLayers, layout.layers);
  const most = Math.floor(maxArenaBytes / (stride * window));
  if (slots > most) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `'${name}': ${slots} contiguous blocks of ${stride * window} bytes; at most ${most} lie in one arena of ` +
        `${maxArenaBytes} bytes: ask for fewer, or use paged memory`,
      { name, blocks: slots, limit_blocks: most },
    );
  }
  const layers = layersOf(layout, (layer) => (layer % window) * stride * slots).map((layer) => ({
    ...layer,
    planes: layer.planes.map((plane) => ({
      ...plane,
      offsetBytes: plane.offsetBytes / blockTokens,
      tokenStrideBytes: stride / blockTokens,
    })),
  }));
  return {
    ...memory(slots, stride * window, name, true, shared),
    ...{ offsetBytes: 0, slotStrideBytes: stride, blockTokens, layers },
  };
}

/** DE HBM: whole sequences, a slot holds every layer of a block. */
export function sequenceGeometry(layout: BlockLayout, slots: number, name: string): NativeGeometry {
  const stride = slotBytes.sequence(layout);
  return {
    ...memory(slots, stride, name, true, false),
    offsetBytes: 0,
    slotStrideBytes: stride,
    blockTokens: layout.blockTokens,
    layers: layersOf(layout, (layer) => layout.layerOffsetBytes(layer)),
  };
}
