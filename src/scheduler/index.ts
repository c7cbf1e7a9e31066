/** Placement, read side and batches: deterministic state machines changed by events; no clock, no I/O. */
export { Admission } from './admission.js';
export { packBatch, type BatchEntry, type BatchLimits, type PackedBatch, type PrefillWork } from './batch.js';
export { DecisionLog, decisionsDocument, type DecisionLogOptions } from './decision-log.js';
export {
  readReasons,
  type Decision,
  type DecodeDecision,
  type PrefillDecision,
  type ReadDecision,
  type RequestDecisions,
  type TimedDecision,
} from './decisions.js';
export {
  FittedTime,
  FittedTimeModel,
  type FitQuality,
  type FlopCounts,
  type ProfilePoint,
} from './fitted-time.js';
export type { EngineState } from './ledger.js';
export { LocalScheduler } from './local.js';
export type { AdmissionOptions } from './options.js';
export { SeededRandom } from './random.js';
export type { RequestState } from './request-entry.js';
export { readTimeS, splitBlocks, type ReadLink } from './read-side.js';
export { alphaTokens, betaTokens } from './thresholds.js';
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
  waitingOrders,
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
  type WaitingOrder,
} from './types.js';
export type { AdmissionStatistics, RequestView, WaitCause } from './views.js';
export type { TenantShare } from './waiting-queue.js';
