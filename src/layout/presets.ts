/** Models by name. Each says where its numbers come from; docs/models.md has the table. */
import type { KvGroup, KvPlane, ModelDescription } from './model.js';

/**
 * MLA latent in the FP8 format of FlashMLA's sparse decoding kernel (vLLM: `fp8_ds_mla`): 512 float8_e4m3 values
 * (kv_lora_rank), 4 float32 scales (one per 128 values), 64 bfloat16 values of RoPE (qk_rope_head_dim).
 */
const mlaFp8Bytes = 512 + 4 * 4 + 64 * 2;

/** An indexer key: `headDim` float8_e4m3 values and one float32 scale (vLLM, DeepseekV32IndexerCache). */
const indexerFp8Bytes = (headDim: number): number => headDim + 4;

const bytesPer16Bit = 2;

/** Public config.json of deepseek-ai/DeepSeek-V3.2-Exp: num_hidden_layers 61, kv_lora_rank 512, index_head_dim 128. */
const dsV32 = mlaWithIndexer('ds-v3.2-660b', 'main', 61, 128);

/**
 * The paper: 30 layers, indexer head dim 64. Its MLA sizes are not given and the model is not public: those of
 * DeepSeek-V3.2 are taken.
 */
const ds27b = mlaWithIndexer('ds-27b', 'paper', 30, 64);

/**
 * Public config.json of Qwen/Qwen2.5-32B: num_hidden_layers 64, num_key_value_heads 8, head dim 128 (hidden_size 5120
 * over 40 heads). FP16 as in the paper.
 */
const qwen25: ModelDescription = {
  name: 'qwen2.5-32b',
  revision: 'main',
  dtype: 'float16',
  layers: 64,
  groups: [
    {
      name: 'gqa',
      layers: range(0, 64),
      planes: keyAndValue(8 * 128 * bytesPer16Bit),
      windowTokens: 0,
      sharding: 'sharded',
      kvHeads: 8,
    },
  ],
};

/**
 * Public config.json of openai/gpt-oss-120b: num_hidden_layers 36, num_key_value_heads 8, head_dim 64, sliding_window
 * 128, layer_types alternating, sliding_attention first.
 */
const gptOss120b: ModelDescription = {
  name: 'gpt-oss-120b',
  revision: 'main',
  dtype: 'bfloat16',
  layers: 36,
  groups: [gptOssGroup('sliding', 0, 128), gptOssGroup('full', 1, 0)],
};

/** Made up, small: 8 layers of K and V, 1,024 bytes per token. */
const demo: ModelDescription = {
  name: 'demo',
  revision: '1',
  dtype: 'emulated',
  layers: 8,
  groups: [
    { name: 'kv', layers: range(0, 8), planes: keyAndValue(64), windowTokens: 0, sharding: 'sharded' },
  ],
};

/** Made up, small, with everything at once: several groups a layer, a window, sizes that align with nothing. */
const demoMla: ModelDescription = {
  name: 'demo-mla',
  revision: '1',
  dtype: 'emulated',
  layers: 4,
  groups: [
    replicatedGroup('mla', 4, { name: 'latent', bytesPerToken: 82 }),
    replicatedGroup('indexer', 4, { name: 'k', bytesPerToken: 20 }),
    { name: 'sliding', layers: [1, 3], planes: keyAndValue(36), windowTokens: 100, sharding: 'sharded' },
  ],
};

/** The models that `loadModel` knows by name. */
export const presets: readonly ModelDescription[] = [dsV32, ds27b, qwen25, gptOss120b, demo, demoMla];

function range(first: number, end: number, step = 1): number[] {
  return Array.from({ length: Math.ceil((end - first) / step) }, (_, index) => first + index * step);
}

function keyAndValue(bytesPerToken: number): KvPlane[] {
  return [
    { name: 'k', bytesPerToken },
    { name: 'v', bytesPerToken },
  ];
}

function replicatedGroup(name: string, layers: number, plane: KvPlane): KvGroup {
  return { name, layers: range(0, layers), planes: [plane], windowTokens: 0, sharding: 'replicated' };
}

function mlaWithIndexer(
  name: string,
  revision: string,
  layers: number,
  indexHeadDim: number,
): ModelDescription {
  return {
    name,
    revision,
    dtype: 'fp8_ds_mla',
    layers,
    groups: [
      replicatedGroup('mla', layers, { name: 'latent', bytesPerToken: mlaFp8Bytes }),
      replicatedGroup('indexer', layers, { name: 'k', bytesPerToken: indexerFp8Bytes(indexHeadDim) }),
    ],
  };
}

function gptOssGroup(name: string, firstLayer: number, windowTokens: number): KvGroup {
  return {
    name,
    layers: range(firstLayer, 36, 2),
    planes: keyAndValue(8 * 64 * bytesPer16Bit),
    windowTokens,
    sharding: 'sharded',
    kvHeads: 8,
  };
}
