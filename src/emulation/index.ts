/** Emulated devices and emulated KV, for replays, tests and benchmarks: nothing here is a GPU. */
export { EmulatedGpu, KvSeeds, type KernelLaunch } from './gpu.js';
export type { GpuStatistics } from '../binding/index.js';
