/** Benchmarks that `dualpath bench` runs. */
export { benchRing, type RingOptions, type RingResult } from './ring.js';
export {
  benchStorage,
  type StorageFigures,
  type StorageOptions,
  type StorageResult,
  type StorageSizeResult,
} from './storage.js';
