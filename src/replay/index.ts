/** A whole emulated cluster in one process, replaying a trace through the public engines. */
export { checkWorkload, storeBytesNeeded } from './check.js';
export { Cluster } from './cluster.js';
export type { ClusterEvents, OpenCluster, ReplayCluster } from './cluster-interface.js';
export { runDecode, runPrefill } from './devices.js';
export {
  decodeSpareBlocks,
  modePlans,
  replayModes,
  type ClusterOptions,
  type ReplayMode,
} from './options.js';
export { LayerWatch, type BatchTimeline, type LayerTimes } from './layer-watch.js';
export { LinkSamples, type LinkSample } from './link-samples.js';
export {
  mergeCopies,
  type CarriedBy,
  type ClusterTotals,
  type CopiedBy,
  type ModeResult,
  type NodeTraffic,
  type TurnRecord,
} from './result.js';
export { replayMode, type ReplayHooks } from './run.js';
export { verifyStore, type StoreCheck } from './verify.js';
export { baselineOf, maxCpuPercent, storageLimit, summarize, type ModeSummary } from './summary.js';
