/** The router as an HTTP proxy. */
export {
  checkReplica,
  defaultLimits,
  defaultOptions,
  defaultTimes,
  type KvEventsConfig,
  type ProxyLimits,
  type ProxyOptions,
  type ProxyTimes,
  type ReplicaConfig,
} from './options.js';
export { Proxy } from './proxy.js';
export { readReplicasFile, watchReplicasFile } from './replicas-file.js';
export { parseServerMetrics, type ServerMetrics } from './server-metrics.js';
export { readTenants } from './tenants.js';
