/** An emulated OpenAI-compatible server, for demonstrations and tests. */
export { EmulatedEngine, type EngineOptions } from './engine.js';
export { defaultReplica, EmulatedReplica, faultKinds, type ReplicaOptions } from './server.js';
