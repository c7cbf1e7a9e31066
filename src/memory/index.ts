/** Arenas, adopted memory, geometries and bounded pools of block slots. */
export { Arena, type ArenaOptions } from './arena.js';
export { CudaDevice, type CudaDeviceOptions } from './cuda-device.js';
export { BlockList, BlockSpace } from './block-space.js';
export {
  indexerKeys,
  mlaLatent,
  sglangAttention,
  vllmAttention,
  type AttentionShape,
  type LayerMemory,
} from './engine-layouts.js';
export {
  engineGeometry,
  pagedTensors,
  type Axis,
  type EngineMemory,
  type GroupMemory,
  type PlanePart,
  type PlaneParts,
  type Tensor,
} from './engine-memory.js';
export {
  bufferGeometry,
  contiguousGeometry,
  sequenceGeometry,
  slotBytes,
  stagingGeometry,
} from './geometry.js';
export { Region, type AddressOptions, type CudaOptions, type FileOptions } from './region.js';
