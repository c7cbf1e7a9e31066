import { describe, expect, it } from 'vitest';
import { metricsOfRank, parseServerMetrics } from '../../src/proxy/server-metrics.js';

/** As the servers of these versions write them, the names that are read and a few beside. */
const vllm1 = `# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="Qwen/Qwen3-0.6B"} 3.0
vllm:num_requests_running{engine="1",model_name="Qwen/Qwen3-0.6B"} 1.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="Qwen/Qwen3-0.6B"} 7.0
vllm:num_requests_waiting{engine="1",model_name="Qwen/Qwen3-0.6B"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="Qwen/Qwen3-0.6B"} 0.25
vllm:prompt_tokens_total{engine="0",model_name="Qwen/Qwen3-0.6B"} 1.2345e+06
vllm:generation_tokens_total{engine="0",model_name="Qwen/Qwen3-0.6B"} 500.0
vllm:iteration_tokens_total_bucket{engine="0",le="1.0",model_name="Qwen/Qwen3-0.6B"} 9.0
vllm:iteration_tokens_total_count{engine="0",model_name="Qwen/Qwen3-0.6B"} 20.0
`;
const vllm0 = `vllm:num_requests_running{model_name="m"} 2.0
vllm:num_requests_waiting{model_name="m"} 4.0
vllm:num_requests_swapped{model_name="m"} 0.0
vllm:gpu_cache_usage_perc{model_name="m"} 0.5
vllm:prompt_tokens_total{model_name="m"} 10.0
`;
const sglang = `# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 5.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 6.0
sglang:token_usage{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 0.75
sglang:prompt_tokens_total{model_name="m"} 100.0
sglang:generation_tokens_total{model_name="m"} 50.0
`;
const llamaCpp = `llamacpp:prompt_tokens_total 40
llamacpp:tokens_predicted_total 2
llamacpp:requests_processing 1
llamacpp:requests_deferred 2
`;

describe('parseServerMetrics', () => {
  it.each([
    ['vLLM V0', vllm0, { runningRequests: 2, waitingRequests: 4, cacheUsage: 0.5, progress: 10 }],
    ['SGLang', sglang, { runningRequests: 5, waitingRequests: 6, cacheUsage: 0.75, progress: 150 }],
    ['llama.cpp', llamaCpp, { runningRequests: 1, waitingRequests: 2, cacheUsage: null, progress: 42 }],
  ])('reads %s', (_name, text, expected) => {
    expect(metricsOfRank(parseServerMetrics(text), 0, 1)).toEqual(expected);
  });

  it('tells the ranks of vLLM apart', () => {
    const parsed = parseServerMetrics(vllm1);
    expect(metricsOfRank(parsed, 0, 2)).toEqual({
      runningRequests: 3,
      waitingRequests: 7,
      cacheUsage: 0.25,
      progress: 1.2345e6 + 500 + 20,
    });
    expect(metricsOfRank(parsed, 1, 2)).toEqual({
      runningRequests: 1,
      waitingRequests: 0,
      cacheUsage: null,
      progress: null,
    });
    expect(metricsOfRank(parsed, 2, 3)).toBeUndefined();
  });

  it.each([
    '',
    'nothing of it',
    'vllm:num_requests_running{model_name="m"} NaN\n',
    'vllm:num_requests_running',
  ])('what is missing is unknown: %j', (text) => {
    expect(metricsOfRank(parseServerMetrics(text), 0, 1)).toBeUndefined();
  });
});
