/**
 * What a work request costs before it reaches a NIC: turned from a block into a request, and posted, in chains. Against
 * the strict stub provider, whose copy of each request is part of the figure; a NIC's doorbell is not.
 */
import { callNative, native, type PostCost } from '../binding/index.js';

export interface PostOptions {
  readonly signal?: AbortSignal;
  readonly onProgress?: (step: string) => void;
  /** Work requests of each sample; default 1,000,000. */
  readonly requests?: number;
  /** Odd, so that there is a middle one; default 5. */
  readonly samples?: number;
}

export interface PostChainResult {
  /** Work requests in a chain. */
  readonly chain: number;
  /** Nanoseconds for each work request; medians of the samples. */
  readonly nsPerRequest: {
    readonly expand: number;
    readonly post: number;
    /** Both: what is compared with the target. */
    readonly total: number;
    /** Polling and accounting. */
    readonly complete: number;
  };
  /** Of the total, over the samples. */
  readonly totalSpreadNs: { readonly min: number; readonly max: number };
  /** Counted by the stub, over all samples. */
  readonly chains: number;
  readonly requests: number;
  readonly postCalls: number;
  readonly completions: number;
}

export interface PostResult {
  readonly results: readonly PostChainResult[];
  readonly targetNsPerRequest: number;
  readonly blockBytes: number;
  readonly provider: 'strict stub (emulated, no RDMA device)';
}

const chainLengths = [1, 8, 64] as const;
const blockTokens = 64;
const bytesPerToken = 64;

export async function benchPost(options: PostOptions = {}): Promise<PostResult> {
  const results: PostChainResult[] = [];
  for (const chain of chainLengths) {
    const samples: PostCost[] = [];
    for (let i = 0; i < (options.samples ?? 5); i++) {
      options.signal?.throwIfAborted();
      options.onProgress?.(`chains of ${chain}, sample ${i + 1}`);
      const chains = Math.max(1, Math.floor((options.requests ?? 1_000_000) / chain));
      samples.push(callNative(() => native().measurePostCost({ chain, chains, blockTokens, bytesPerToken })));
      // Between two samples the event loop sees an interrupt.
      await new Promise((resolve) => setImmediate(resolve));
    }
    results.push(chainResult(chain, samples));
  }
  return {
    results,
    targetNsPerRequest: 60,
    blockBytes: blockTokens * bytesPerToken,
    provider: 'strict stub (emulated, no RDMA device)',
  };
}

function chainResult(chain: number, samples: readonly PostCost[]): PostChainResult {
  const totals = samples.map((sample) => sample.expandNsPerRequest + sample.postNsPerRequest);
  const sum = (of: (sample: PostCost) => number): number =>
    samples.reduce((total, sample) => total + of(sample), 0);
  return {
    chain,
    nsPerRequest: {
      expand: median(samples.map((sample) => sample.expandNsPerRequest)),
      post: median(samples.map((sample) => sample.postNsPerRequest)),
      total: median(totals),
      complete: median(samples.map((sample) => sample.completeNsPerRequest)),
    },
    totalSpreadNs: { min: Math.min(...totals), max: Math.max(...totals) },
    chains: sum((sample) => sample.chains),
    requests: sum((sample) => sample.requests),
    postCalls: sum((sample) => sample.postCalls),
    completions: sum((sample) => sample.completions),
  };
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)]!;
}
