/** A whole emulated cluster in one process, replaying a trace through the public engines. */
export { checkWorkload, storeBytesNeeded } from './check.js';
export { Cluster } from './cluster.js';
export {
  decodeSpareBlocks,
  modePlans,
  replayModes,
  type ClusterOptions,
  type ReplayMode,
} from './options.js';
export type { ModeResult, NodeTraffic, TurnRecord } from './result.js';
export { replayMode, type ReplayHooks } from './run.js';
export { verifyStore, type StoreCheck } from './verify.js';
export { baselineOf, maxCpuPercent, storageLimit, summarize, type ModeSummary } from './summary.js';
