/**
 * dualpath: moves KV-Cache for disaggregated LLM inference.
 *
 * Base level, for an engine with its own scheduler and paged memory: `TrafficManager` (lookup, load, save;
 * cancelled by an AbortSignal). On top: `PrefillEngine` and `DecodeEngine`. Below both: programs on counters (`TransferEngine`).
 */
export {
  ControlNode,
  EngineControl,
  LocalControl,
  type ControlLink,
  type ControlMessage,
  type ControlNodeOptions,
} from './control/index.js';
export { EmulatedGpu, KvSeeds, type GpuStatistics, type KernelLaunch } from './emulation/index.js';
export {
  DecodeEngine,
  DecodeSequence,
  PrefillBatch,
  PrefillEngine,
  type BatchLayer,
  type BatchPart,
  type DecodeEngineOptions,
  type PrefillEngineOptions,
  type PromptSource,
  type SequenceResult,
} from './engine/index.js';
export {
  DualPathError,
  errorCodes,
  isDualPathError,
  type ErrorCode,
  type ErrorDetails,
} from './errors/index.js';
export { EtcdMembership, parseEtcdUrl, type EtcdMembershipOptions } from './etcd/index.js';
export { blockLayout, loadModel, presets, type BlockLayout, type ModelDescription } from './layout/index.js';
export { leaseLog, loggedScheduler, openLog, type Log, type LogLevel, type LogOptions } from './log/index.js';
export {
  Arena,
  BlockList,
  BlockSpace,
  contiguousGeometry,
  engineGeometry,
  indexerKeys,
  mlaLatent,
  pagedTensors,
  CudaDevice,
  Region,
  sequenceGeometry,
  sglangAttention,
  stagingGeometry,
  vllmAttention,
  type AttentionShape,
  type EngineMemory,
  type GroupMemory,
  type LayerMemory,
  type Tensor,
} from './memory/index.js';
export { CopyNic, findRdmaPlace, PathExchange, rdmaTransport, type CopyNicOptions } from './rdma/index.js';
export {
  EngineClient,
  RequestClient,
  type AssignmentDetails,
  type EngineClientOptions,
  type RequestClientOptions,
  type Submitted,
} from './scheduler-client/index.js';
export {
  LinearTimeModel,
  LocalScheduler,
  type Assignment,
  type SchedulerClient,
  type TimeModel,
} from './scheduler/index.js';
export {
  BlockStore,
  StoreAdmin,
  type AdminOptions,
  type BlockStoreOptions,
  type DeleteReport,
  type GcOptions,
  type GcReport,
  type StoreNamespace,
  type StoreReport,
  type VerifyOptions,
  type VerifyReport,
} from './storage/index.js';
export { SchedulerServer, type Leadership, type Membership, type ServeOptions } from './serve/index.js';
export { MemoryExchange, sharedMemoryTransport } from './shared-memory/index.js';
export {
  LoadError,
  ShardedLookup,
  ShardedTraffic,
  TrafficManager,
  type BlockTable,
  type CallOptions,
  type KeyChain,
  type LinkOptions,
  type LoadOperation,
  type LoadOptions,
  type SaveOperation,
  type SaveOptions,
  type TrafficManagerOptions,
} from './traffic/index.js';
export {
  ProgramError,
  Runtime,
  type RuntimeOptions,
  SharedDoor,
  TransferEngine,
  type Descriptor,
  type OfferedMemory,
  type Program,
  type ProgramResult,
  type SharedDoorOptions,
  type Signal,
  type Wait,
} from './transfer/index.js';
