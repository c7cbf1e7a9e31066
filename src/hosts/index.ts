/** Engines in processes of their own, on one host or several, and how a replay drives them. */
export { EngineHost, type EngineHostOptions } from './engine-host.js';
export { findEngines, RemoteEngines, type RemoteEngine, type RemoteSettings } from './remote-cluster.js';
export { EngineProcesses, type EngineProcessOptions } from './engine-processes.js';
