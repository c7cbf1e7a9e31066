/** Models, KV groups, Full Blocks and Layer Blocks: arithmetic only. */
export { blockLayout, blockLimits } from './block-layout.js';
export type { BlockLayout, PlacedPlane, Shard } from './block-layout.js';
export { closest } from './closest.js';
export { loadModel, parseModel } from './load.js';
export { checkModel, modelLimits } from './model.js';
export type { KvGroup, KvPlane, ModelDescription } from './model.js';
export { presets } from './presets.js';
export { firstVisibleBlock, windowFirstToken } from './window.js';
