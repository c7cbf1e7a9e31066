/** What the DualMap paper reports, measured on GPUs; for comparison only (arXiv 2602.06502). */
export const published = {
  source: 'DualMap, ICLR 2026, arXiv 2602.06502: 8 instances, Qwen2.5-7B/14B, SLO TTFT < 5 s',
  /** Best over QPS, against the best baseline. */
  capacityOverBestBaseline: { conversation: { low: 1.406, high: 1.8 }, toolAgent: { low: null, high: 2.25 } },
  goodputOverBestBaseline: { conversation: { low: 1.143, high: 1.4 }, toolAgent: { low: 1.167, high: 1.48 } },
  ttftP50Change: { low: -0.554, high: -0.974 },
  ttftP90Change: { low: -0.823, high: -0.97 },
  hitRateOfCacheAffinity: { conversation: 0.625, toolAgent: 0.964 },
  /** Blocks of the hash key and the share of requests, where reported. */
  keys: {
    conversation: [{ blocks: 2, share: 0.95 }],
    toolAgent: [
      { blocks: 2, share: 0.452 },
      { blocks: 6, share: 0.149 },
      { blocks: 13, share: 0.378 },
    ],
  },
  ablation: {
    trace: 'conversation, 14B',
    sloAwareAgainstMinTtft: { p50Change: -0.235, p90Change: -0.185 },
    rebalancingP90Change: -0.113,
  },
  elasticity: { overloadedReplicas: 4, replicas: 8, scaledUpAtS: 74, attainmentAfter: 0.9 },
  scaling: { replicas: [8, 32], goodput: 'near-linear' },
} as const;

interface PublishedFor {
  readonly capacity?: { readonly low: number | null; readonly high: number };
  readonly goodput?: { readonly low: number; readonly high: number };
  readonly keys?: readonly { readonly blocks: number; readonly share: number }[];
}

/** What is published for a trace of this name or path; nothing for traces that the paper does not have. */
export function publishedFor(trace: string): PublishedFor {
  const { capacityOverBestBaseline: capacity, goodputOverBestBaseline: goodput, keys } = published;
  const name = trace.split('/').at(-1)!;
  const kind = /tool-?_?agent/i.test(name) ? 'toolAgent' : /conversation/i.test(name) ? 'conversation' : null;
  return kind === null ? {} : { capacity: capacity[kind], goodput: goodput[kind], keys: keys[kind] };
}
