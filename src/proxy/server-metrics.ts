/** What a replica says of itself. Null is unknown, never zero. */
export interface ServerMetrics {
  readonly runningRequests: number | null;
  readonly waitingRequests: number | null;
  /** Share of the KV cache in use, 0 to 1. */
  readonly cacheUsage: number | null;
  /** The sum of counters that grow as long as the engine works; only that it grows means something. */
  readonly progress: number | null;
}

interface Names {
  readonly running: readonly string[];
  readonly waiting: readonly string[];
  readonly cache: readonly string[];
  readonly progress: readonly string[];
}

/**
 * Names by meaning, newer ones first: vLLM (V1 and before), SGLang, llama.cpp's server, TensorRT-LLM's Triton names are
 * not among them. Counters end in `_total` in the text format, but some exporters leave that out.
 */
const names: Names = {
  running: ['vllm:num_requests_running', 'sglang:num_running_reqs', 'llamacpp:requests_processing'],
  waiting: ['vllm:num_requests_waiting', 'sglang:num_queue_reqs', 'llamacpp:requests_deferred'],
  cache: [
    'vllm:kv_cache_usage_perc',
    'vllm:gpu_cache_usage_perc',
    'sglang:token_usage',
    'llamacpp:kv_cache_usage_ratio',
  ],
  progress: [
    'vllm:prompt_tokens_total',
    'vllm:generation_tokens_total',
    'vllm:iteration_tokens_total_sum',
    'vllm:iteration_tokens_total_count',
    'vllm:request_success_total',
    'sglang:prompt_tokens_total',
    'sglang:generation_tokens_total',
    'sglang:num_requests_total',
    'llamacpp:prompt_tokens_total',
    'llamacpp:tokens_predicted_total',
    'llamacpp:n_decode_total',
  ],
};

const meanings = new Map<string, keyof Names>(
  (Object.keys(names) as (keyof Names)[]).flatMap((meaning) =>
    names[meaning].map((name) => [name, meaning] as const),
  ),
);

/** `name{labels} value` of the Prometheus text format. */
const sample = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)/;
const rankLabel = /(?:^|,)\s*(?:engine|dp_rank)="(\d+)"/;
const textBytesMax = 8 * 1024 * 1024;

/** Of each data-parallel rank; under null what no rank is named for. */
export function parseServerMetrics(text: string): Map<number | null, ServerMetrics> {
  const sums = new Map<number | null, Map<string, number>>();
  for (const line of text.slice(0, textBytesMax).split('\n')) {
    if (!/^(?:vllm|sglang|llamacpp):/.test(line)) continue;
    const match = sample.exec(line);
    if (match === null || !meanings.has(match[1]!)) continue;
    const value = Number(match[3]);
    if (!Number.isFinite(value)) continue;
    const rank = rankLabel.exec(match[2] ?? '')?.[1];
    const key = rank === undefined ? null : Number(rank);
    let ofRank = sums.get(key);
    if (ofRank === undefined) sums.set(key, (ofRank = new Map<string, number>()));
    // Several samples of a name are several models or adapters of one engine.
    ofRank.set(match[1]!, (ofRank.get(match[1]!) ?? 0) + value);
  }
  return new Map([...sums].map(([rank, found]) => [rank, metricsOf(found)]));
}

function metricsOf(found: ReadonlyMap<string, number>): ServerMetrics {
  const first = (meaning: keyof Names): number | null => {
    const name = names[meaning].find((each) => found.has(each));
    return name === undefined ? null : found.get(name)!;
  };
  const counters = names.progress.filter((name) => found.has(name));
  return {
    runningRequests: first('running'),
    waitingRequests: first('waiting'),
    cacheUsage: first('cache'),
    progress: counters.length === 0 ? null : counters.reduce((sum, name) => sum + found.get(name)!, 0),
  };
}

/** Of one rank of `ranks`; a server that names none speaks for all, which is told apart only where it has one. */
export function metricsOfRank(
  parsed: ReadonlyMap<number | null, ServerMetrics>,
  rank: number,
  ranks: number,
): ServerMetrics | undefined {
  const own = parsed.get(rank);
  if (own !== undefined && ranks > 1) return own;
  if (ranks > 1) return undefined;
  return own ?? parsed.get(null);
}
