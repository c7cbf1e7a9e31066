/** Benchmarks that `dualpath bench` runs. */
export {
  benchLookup,
  type LookupCase,
  type LookupOptions,
  type LookupResult,
  type Percentiles,
} from './lookup.js';
export { benchPost, type PostChainResult, type PostOptions, type PostResult } from './post.js';
export { benchRing, type RingOptions, type RingResult } from './ring.js';
export { benchRouter, type RouterBenchOptions, type RouterBenchResult, type RouterResult } from './router.js';
export {
  benchStorage,
  type StorageFigures,
  type StorageOptions,
  type StorageResult,
  type StorageSizeResult,
} from './storage.js';
export {
  benchScheduler,
  type SchedulerBenchOptions,
  type SchedulerBenchResult,
  type SchedulerSizeResult,
} from './scheduler.js';
export { benchBalance, type BalanceOptions, type BalanceResult } from './balance.js';
export { benchTail, type TailOptions, type TailResult, type TailPolicy, type TailRun } from './tail.js';
export { benchRdma, type RdmaBenchOptions, type RdmaBenchResult, type RdmaTest } from './rdma/bandwidth.js';
export { connectNode, defaultControlPort, serveNode, type Methods, type RemoteNode } from './rdma/remote.js';
export { Sides, type SidesOptions } from './rdma/sides.js';
export { benchQos, type QosFigures, type QosOptions, type QosResult } from './rdma/qos.js';
export { benchControl, type ControlBenchResult } from './control/index.js';
export { benchCopy, type CopyBenchOptions, type CopyBenchResult, type CopyWayResult } from './copy.js';
