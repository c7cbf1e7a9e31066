/** Leases of requests on engines: a state machine around the scheduler; no clock, no I/O. */
export type { EngineRecord } from './engine-table.js';
export { LeaseLedger } from './ledger.js';
export { leaseMargin } from './options.js';
export type { LeaseState, RequestRecord } from './request-record.js';
export { nameOf } from './request-record.js';
export { TokenLog } from './token-log.js';
export type {
  DroppedWord,
  EngineChange,
  EnginePresence,
  GroupHello,
  HeldLease,
  LeaseEvent,
  LeaseGrant,
  LeaseOptions,
  LeaseOutcome,
  LeaseSink,
  LeaseStatistics,
  LeaseSubmission,
} from './types.js';
