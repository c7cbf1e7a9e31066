/** DualMap: which of several replicas serves a request. Deterministic state machines; no clock, no I/O. */
export { takesFirst, type Candidate, type ChoiceRule, type Fallback } from './choice.js';
export { Cluster, type ClusterOptions, type LoadView } from './cluster.js';
export { hash32 } from './hash.js';
export { HotnessTree, type HotnessOptions, type HotnessScale } from './hotness.js';
export type { Instance, InstanceOptions } from './instance.js';
export { routerLimits } from './limits.js';
export type { Move, RoutingPolicy } from './policy.js';
export * from './policies/index.js';
export { PrefixIndex } from './prefix-index.js';
export { rebalance, type RebalanceOptions } from './rebalance.js';
export { ReportedBlocks } from './reported-blocks.js';
export type { RequestInput, RequestState, RoutedRequest } from './request.js';
export { HashRing, type RingMember } from './ring.js';
export { Router, type QueueOrder, type RouterDecisions, type RouterOptions } from './router.js';
