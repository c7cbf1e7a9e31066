/** Structured logs: lines of JSON, each with the id of the request that it is about. */
export { errorFields, isRequestId, roundedMs, traceIdOf, type Log } from './fields.js';
export { leaseLog } from './lease-log.js';
export { logLevels, openLog, type LogFile, type LogLevel, type LogOptions } from './open.js';
export { loggedScheduler } from './scheduler-log.js';
