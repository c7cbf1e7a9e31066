import {
  BoundedLoadPolicy,
  CacheAffinityPolicy,
  CacheAwarePolicy,
  DualMapPolicy,
  DynamoPolicy,
  HashAffinityPolicy,
  LateLanePolicy,
  lateLane,
  LeastLoadedPolicy,
  MaxHitPolicy,
  MinTtftPolicy,
  paperDualMap,
  PowerOfTwoPolicy,
  PreblePolicy,
  RoundRobinPolicy,
  type DualMapOptions,
  type LateLaneOptions,
  type RoutingPolicy,
} from '../router/index.js';

/**
 * What a policy is to the comparison. Weak baselines know loads or prefixes, strong ones both, of all replicas at once;
 * others are run beside them. Ablations are DualMap with one part taken away or changed.
 */
export type PolicyKind = 'dualmap' | 'own' | 'weak' | 'strong' | 'other' | 'ablation';

export interface PolicyEntry {
  readonly name: string;
  readonly kind: PolicyKind;
  readonly what: string;
  readonly make: (seed: number) => RoutingPolicy;
}

function dualMap(
  name: string,
  kind: PolicyKind,
  what: string,
  change: Partial<DualMapOptions> = {},
): PolicyEntry {
  return { name, kind, what, make: (seed) => new DualMapPolicy({ ...paperDualMap, ...change, name, seed }) };
}

function lane(
  name: string,
  kind: PolicyKind,
  what: string,
  change: Partial<LateLaneOptions> = {},
): PolicyEntry {
  return { name, kind, what, make: (seed) => new LateLanePolicy({ ...lateLane, ...change, name, seed }) };
}

const paperKey = {
  share: 'uncached-tokens',
  extendAbove: 2,
  shrinkBelow: 1,
  relative: 'instances',
  trees: 1,
} as const;
const relativeKey = {
  share: 'requests',
  extendAbove: 0.5,
  shrinkBelow: 0.25,
  relative: 'instances',
  trees: 1,
} as const;
const releasedKey = {
  share: 'requests',
  extendAbove: 0.0612,
  shrinkBelow: 0.02,
  relative: 'all',
  trees: 1,
} as const;

const released = {
  leaveAtSloShare: 0.5,
  fallback: 'smaller-ttft',
  rebalance: 'any-overloaded',
  key: releasedKey,
} as const;

export const policyEntries: readonly PolicyEntry[] = [
  dualMap('dualmap', 'dualmap', 'the paper'),
  dualMap(
    'dualmap-released',
    'dualmap',
    'the choice, thresholds and rebalancing of the released code',
    released,
  ),
  dualMap(
    'dualmap-variant',
    'dualmap',
    'leaves for a candidate that meets the SLO, else the smaller TTFT of the pair',
    {
      fallback: 'other-if-slo',
      rebalance: 'any-overloaded',
      key: releasedKey,
    },
  ),
  lane('late-lane', 'own', 'holder, pair and four by chance; what is late anyway waits in one place'),
  { name: 'round-robin', kind: 'weak', what: 'in turn', make: () => new RoundRobinPolicy() },
  {
    name: 'least-loaded',
    kind: 'weak',
    what: 'fewest pending tokens',
    make: (seed) => new LeastLoadedPolicy(seed),
  },
  {
    name: 'power-of-two',
    kind: 'weak',
    what: 'of two by chance',
    make: (seed) => new PowerOfTwoPolicy(seed),
  },
  { name: 'hash-affinity', kind: 'weak', what: 'prefix hash', make: (seed) => new HashAffinityPolicy(seed) },
  { name: 'cache-affinity', kind: 'weak', what: 'most hits', make: (seed) => new CacheAffinityPolicy(seed) },
  { name: 'min-ttft', kind: 'strong', what: 'Mooncake', make: (seed) => new MinTtftPolicy(seed) },
  { name: 'preble', kind: 'strong', what: 'Preble E2', make: (seed) => new PreblePolicy(seed) },
  {
    name: 'max-hit',
    kind: 'strong',
    what: 'most hits, ties least loaded',
    make: (seed) => new MaxHitPolicy(seed),
  },
  { name: 'dynamo', kind: 'other', what: 'Dynamo KV router', make: (seed) => new DynamoPolicy(seed) },
  {
    name: 'sglang-cache-aware',
    kind: 'other',
    what: 'SGLang router',
    make: (seed) => new CacheAwarePolicy(seed),
  },
  {
    name: 'bounded-load',
    kind: 'other',
    what: 'bounded hashing',
    make: (seed) => new BoundedLoadPolicy(seed),
  },
  dualMap('pair-min-ttft', 'ablation', 'always the smaller TTFT of the pair', {
    leaveAtSloShare: 0,
    fallback: 'smaller-ttft',
  }),
  dualMap('no-rebalancing', 'ablation', 'no rebalancing', { rebalance: 'none' }),
  dualMap(
    'spread-key',
    'ablation',
    'the variant with relative thresholds; a hot prefix lies where it is borne',
    {
      fallback: 'other-if-slo',
      rebalance: 'any-overloaded',
      key: { ...relativeKey, subKeyShare: 0.25 },
    },
  ),
  dualMap('relative-key', 'ablation', 'the same; a hot prefix lies everywhere', {
    fallback: 'other-if-slo',
    rebalance: 'any-overloaded',
    key: relativeKey,
  }),
  dualMap('third-instance', 'ablation', 'rebalancing to the least loaded of all', {
    rebalanceTargets: 'any',
  }),
  dualMap('one-block-key', 'ablation', 'hash key of 1 block', { key: { blocks: 1 } }),
  dualMap('two-block-key', 'ablation', 'hash key of 2 blocks', { key: { blocks: 2 } }),
  dualMap('extend-at-0.5', 'ablation', 'extends above 0.5/n, shrinks below 0.25/n', {
    key: { ...paperKey, extendAbove: 0.5, shrinkBelow: 0.25 },
  }),
  dualMap('extend-at-1', 'ablation', 'extends above 1/n, shrinks below 0.5/n', {
    key: { ...paperKey, extendAbove: 1, shrinkBelow: 0.5 },
  }),
  dualMap('share-of-requests', 'ablation', 'hotness by requests', {
    key: { ...paperKey, share: 'requests' },
  }),
  dualMap('one-ring-point', 'ablation', 'one place a replica on each ring', { pointsPerWeight: 1 }),
  dualMap('two-routers', 'ablation', 'two trees that see half the requests each', {
    key: { ...paperKey, trees: 2 },
  }),
  dualMap('four-routers', 'ablation', 'four trees', { key: { ...paperKey, trees: 4 } }),
  lane('lane-none', 'ablation', 'late-lane without a lane', { lateS: 0 }),
  lane('lane-30s', 'ablation', 'a lane of 30 s', { lateS: 30 }),
  lane('lane-120s', 'ablation', 'a lane of 120 s', { lateS: 120 }),
  lane('lane-no-samples', 'ablation', 'no candidates by chance', { samples: 0 }),
  lane('lane-no-directory', 'ablation', 'no directory of holders', { directory: false }),
  lane('lane-leaves-always', 'ablation', 'leaves the holder at any price', { leavesUpTo: 1 }),
  lane('lane-everywhere', 'ablation', 'hot prefixes lie on every instance', { subKeyShare: undefined }),
  lane('lane-told-only', 'ablation', 'no account of its own', { counts: false }),
];

export function policyOf(name: string): PolicyEntry {
  return policyEntries.find((entry) => entry.name === name)!;
}
