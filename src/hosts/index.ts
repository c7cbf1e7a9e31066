/** Engines in processes of their own, on one host or several, and how a replay drives them. */
export { EngineHost, type EngineHostOptions } from './engine-host.js';
export { findEngines, RemoteEngines } from './remote-cluster.js';
export type { RemoteEngine, RemoteSettings } from './run-job.js';
export { SchedulerProcess } from './scheduler-process.js';
export { EngineProcesses, type EngineProcessOptions } from './engine-processes.js';
