/** Arenas, geometries and bounded pools of block slots. */
export { Arena, type ArenaOptions } from './arena.js';
export { BlockList, BlockSpace } from './block-space.js';
export { bufferGeometry, sequenceGeometry, slotBytes, stagingGeometry } from './geometry.js';
