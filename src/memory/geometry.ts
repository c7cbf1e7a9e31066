/** Where blocks lie in a region: three layouts of our own; an engine's paged memory is a fourth, adopted. */
import type { NativeGeometry } from '../binding/index.js';
import { DualPathError } from '../errors/index.js';
import type { BlockLayout } from '../layout/index.js';
import { Arena } from './arena.js';

const cacheLine = 64;
const roundUp = (value: number, unit: number): number => Math.ceil(value / unit) * unit;

/** What an arena holds at most: io_uring registers no more as one buffer. */
const maxArenaBytes = 2 ** 30;

/** @throws INVALID_ARGUMENT unless one arena holds the slots. */
function checkSlots(slots: number, bytesPerSlot: number, name: string): void {
  const most = Math.floor(maxArenaBytes / bytesPerSlot);
  if (Number.isSafeInteger(slots) && slots >= 1 && slots <= most) return;
  throw new DualPathError(
    'INVALID_ARGUMENT',
    `'${name}': ${slots} blocks of ${bytesPerSlot} bytes each; 1 to ${most} fit its arena of at most ` +
      `${maxArenaBytes} bytes: ask for as many, or use several engines for more`,
    { name, blocks: String(slots), block_bytes: bytesPerSlot, limit_blocks: most },
  );
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
): NativeGeometry {
  checkSlots(slots, file.fileBytes, name);
  const arena = new Arena({ name, bytes: slots * file.fileBytes });
  return {
    arena: arena.handle,
    offsetBytes: 0,
    slotStrideBytes: file.fileBytes,
    slots,
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
): NativeGeometry {
  const stride = roundUp(layout.maxLayerBlockBytes, cacheLine);
  const window = Math.min(windowLayers, layout.layers);
  checkSlots(slots, stride * window, name);
  const arena = new Arena({ name, bytes: stride * slots * window, emulatedHbm: true });
  return {
    arena: arena.handle,
    offsetBytes: 0,
    slotStrideBytes: stride,
    slots,
    blockTokens: layout.blockTokens,
    layers: layersOf(layout, (layer) => (layer % window) * stride * slots),
  };
}

/** DE HBM: whole sequences, a slot holds every layer of a block. */
export function sequenceGeometry(layout: BlockLayout, slots: number, name: string): NativeGeometry {
  const stride = slotBytes.sequence(layout);
  checkSlots(slots, stride, name);
  const arena = new Arena({ name, bytes: stride * slots, emulatedHbm: true });
  return {
    arena: arena.handle,
    offsetBytes: 0,
    slotStrideBytes: stride,
    slots,
    blockTokens: layout.blockTokens,
    layers: layersOf(layout, (layer) => layout.layerOffsetBytes(layer)),
  };
}
