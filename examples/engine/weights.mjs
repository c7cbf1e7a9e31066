/**
 * A Llama-type model's shape and weights: from a GGUF file, or seeded random ones. Matrices are [out, in], as GGUF has them.
 */
import { openGguf } from './gguf.mjs';

/** Shapes for random weights: SmolLM2-135M's own, and one that loads in a moment. */
export const shapes = {
  'smollm2-135m': {
    ...{ layers: 30, hidden: 576, heads: 9, kvHeads: 3, headDim: 64, feedForward: 1536, vocab: 49_152 },
    ...{ ropeBase: 100_000, epsilon: 1e-5 },
  },
  small: {
    ...{ layers: 6, hidden: 64, heads: 4, kvHeads: 2, headDim: 16, feedForward: 128, vocab: 260 },
    ...{ ropeBase: 10_000, epsilon: 1e-5 },
  },
};

/** The values of a layer's tensors, by the names that GGUF gives them. */
const layerTensors = (s) => ({
  'attn_norm.weight': [s.hidden],
  'attn_q.weight': [s.heads * s.headDim, s.hidden],
  'attn_k.weight': [s.kvHeads * s.headDim, s.hidden],
  'attn_v.weight': [s.kvHeads * s.headDim, s.hidden],
  'attn_output.weight': [s.hidden, s.heads * s.headDim],
  'ffn_norm.weight': [s.hidden],
  'ffn_gate.weight': [s.feedForward, s.hidden],
  'ffn_up.weight': [s.feedForward, s.hidden],
  'ffn_down.weight': [s.hidden, s.feedForward],
});

const modelTensors = (s) => ({
  'token_embd.weight': [s.vocab, s.hidden],
  'output_norm.weight': [s.hidden],
});

/** xorshift32: the same weights everywhere, a few million a second. */
function randomFloats(seed, count, scale) {
  const data = new Float32Array(count);
  let state = seed | 1;
  for (let i = 0; i < count; i++) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    data[i] = (state / 2 ** 31) * scale;
  }
  return data;
}

export function randomWeights(name, seed = 1) {
  const shape = shapes[name];
  if (shape === undefined) throw new Error(`no shape ${name}; there are ${Object.keys(shapes).join(', ')}`);
  const all = Object.entries(modelTensors(shape));
  for (let layer = 0; layer < shape.layers; layer++)
    for (const [key, dims] of Object.entries(layerTensors(shape))) all.push([`blk.${layer}.${key}`, dims]);
  const places = new Map(all.map(([key, dims], index) => [key, { dims, index }]));
  const tensor = (key) => {
    const { dims, index } = places.get(key);
    const count = dims.reduce((product, dim) => product * dim, 1);
    if (key.includes('norm')) return new Float32Array(count).fill(1);
    // Uniform with the variance 1 / inputs: activations neither vanish nor explode. Embeddings are small beside what layers
    // add, or else each token would predict itself.
    const scale = key.startsWith('token_embd') ? 0.1 : Math.sqrt(3 / dims[1]);
    return randomFloats(Math.imul(seed, 0x9e3779b1) ^ Math.imul(index + 1, 0x85ebca6b), count, scale);
  };
  return {
    name: `random-${name}`,
    revision: `seed-${seed}`,
    shape,
    tensor,
    metadata: undefined,
    close: () => {},
  };
}

export function ggufWeights(path) {
  const file = openGguf(path);
  const { metadata } = file;
  const architecture = metadata['general.architecture'];
  if (architecture !== 'llama')
    throw new Error(`${path} has the architecture ${architecture}; llama is needed`);
  const get = (key) => metadata[`llama.${key}`];
  const [heads, hidden] = [get('attention.head_count'), get('embedding_length')];
  const shape = {
    layers: get('block_count'),
    hidden,
    heads,
    kvHeads: get('attention.head_count_kv') ?? heads,
    headDim: get('attention.key_length') ?? hidden / heads,
    feedForward: get('feed_forward_length'),
    vocab: metadata['tokenizer.ggml.tokens'].length,
    ropeBase: get('rope.freq_base') ?? 10_000,
    epsilon: get('attention.layer_norm_rms_epsilon'),
  };
  const tensor = (key) => file.tensor(key).data;
  return {
    name: metadata['general.basename'] ?? metadata['general.name'] ?? 'gguf',
    revision: `${metadata['general.name'] ?? 'unnamed'} file type ${metadata['general.file_type'] ?? '?'}`,
    ...{ shape, tensor, metadata, has: file.has, close: file.close },
  };
}
