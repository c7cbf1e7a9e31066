/** What a router may hold. */
export const routerLimits = {
  instances: 4096,
  /** Places of one ring: 4,096 instances of weight 1 and 1,000 places each. */
  ringPoints: 1 << 22,
  /** Requests waiting and dispatched. */
  requests: 1 << 17,
  /** Blocks of one prompt that are looked at; later ones neither hit nor are indexed. */
  blocksPerRequest: 1 << 16,
  /** Blocks of one instance's index. */
  blocksPerInstance: 1 << 22,
} as const;
