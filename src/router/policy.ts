import type { Cluster } from './cluster.js';
import type { Instance } from './instance.js';
import type { RoutedRequest } from './request.js';

/**
 * Where requests go. A policy is deterministic: it decides by what the cluster says, and by a seeded source of chance
 * if it needs one.
 */
export interface RoutingPolicy {
  readonly name: string;
  /** One of `cluster.routable`, which is not empty. */
  route(request: RoutedRequest, cluster: Cluster): Instance;
  /** The request waits at its instance: the policy may move waiting requests by `move`. */
  queued?(request: RoutedRequest, cluster: Cluster, move: Move): void;
  /** An instance finished a prefill. */
  prefilled?(request: RoutedRequest, cluster: Cluster, move: Move): void;
  instanceAdded?(instance: Instance, cluster: Cluster): void;
  /** Also when it begins to drain. */
  instanceRemoved?(instance: Instance, cluster: Cluster): void;
  /** Prefixes that it keys deeper, two u32 each: what routers side by side tell each other. */
  extendedKeys?(): Uint32Array;
  /** Prefixes that other routers key deeper at present; they are keyed deeper here, too. Replaces what was told before. */
  adoptExtended?(keys: Uint32Array): void;
}

/** Takes a waiting request to the end of another instance's queue. */
export type Move = (request: RoutedRequest, to: Instance) => void;
