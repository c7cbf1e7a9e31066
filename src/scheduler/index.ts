/** Admission, read side and batches: deterministic state machines changed by events; no clock, no I/O. */
export { Admission, type AdmissionStatistics } from './admission.js';
export { packBatch, type BatchEntry, type BatchLimits, type PackedBatch, type PrefillWork } from './batch.js';
export type { EngineState } from './ledger.js';
export { LocalScheduler } from './local.js';
export type { AdmissionOptions } from './options.js';
export type { WaitCause } from './placement.js';
export { SeededRandom } from './random.js';
export { readTimeS, splitBlocks, type ReadLink } from './read-side.js';
export {
  attentionPairs,
  LinearTimeModel,
  type BatchPart,
  type BatchTime,
  type LinearTimeCoefficients,
  type TimeModel,
} from './time-model.js';
export {
  readPolicies,
  stages,
  type Assignment,
  type EngineCapacity,
  type EngineLoad,
  type EngineRole,
  type ReadPolicy,
  type ReadSide,
  type RequestDescription,
  type RequestFailure,
  type SchedulerClient,
  type Stage,
} from './types.js';
