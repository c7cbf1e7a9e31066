/** Where requests go: DualMap and what it is compared with, behind one interface. */
export { BoundedLoadPolicy, CacheAffinityPolicy, HashAffinityPolicy, MaxHitPolicy } from './affinity.js';
export { DualMapPolicy, paperDualMap, type DualMapOptions, type KeyOptions } from './dual-map.js';
export { lateLane, LateLanePolicy, type LateLaneOptions } from './late-lane.js';
export { PreblePolicy, type PrebleOptions } from './preble.js';
export {
  CacheAwarePolicy,
  DynamoPolicy,
  MinTtftPolicy,
  type CacheAwareOptions,
  type DynamoOptions,
} from './published.js';
export { LeastLoadedPolicy, PowerOfTwoPolicy, RoundRobinPolicy } from './simple.js';
