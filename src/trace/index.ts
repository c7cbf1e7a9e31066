/** Readers and generators of workload traces, the choice of a workload from one, and which of its tokens are equal. */
export { Draws } from './draws.js';
export {
  dataSets,
  dataSetStatistics,
  generateTrace,
  type DataSetName,
  type DataSetStatistics,
  type GeneratedSession,
  type GeneratedTurn,
  type GenerateOptions,
} from './generate.js';
export { readTrace, type ReadTraceOptions } from './reader.js';
export { toolAgentDescription, toolAgentSessions } from './tool-agent.js';
export { selectSessions, type SelectOptions } from './select.js';
export { SessionTokens } from './session-tokens.js';
export {
  traceStatistics,
  type HitRate,
  type StatisticsOptions,
  type Summary,
  type TraceStatistics,
} from './statistics.js';
export {
  keptTokensOf,
  traceFormats,
  traceLimits,
  type PrefixSegment,
  type Session,
  type TraceClock,
  type TraceEntry,
  type TraceFormat,
  type Turn,
  type TurnIdentity,
} from './types.js';
export { loadWorkload, type LeftOut, type Workload, type WorkloadOptions } from './workload.js';
