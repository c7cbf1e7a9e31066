/**
 * The memory of engines in public use, as `pagedTensors` takes it. docs/embedding.md says where each shape is
 * from. All are thin: an engine that differs passes shape and strides itself.
 */
import { pagedTensors, type Axis, type GroupMemory, type PlaneParts, type Tensor } from './engine-memory.js';
import type { Region } from './region.js';

/** One layer's tensor, or one of its planes'. */
export interface LayerMemory {
  readonly memory: Region;
  /** Of its first element, in the memory; default 0. */
  readonly offsetBytes?: number;
}

export interface AttentionShape {
  /** Pages, as the engine counts them. */
  readonly blocks: number;
  /** Tokens of a page. */
  readonly blockSize: number;
  /** KV heads of this shard. */
  readonly heads: number;
  readonly headSize: number;
  readonly elementBytes: number;
}

/**
 * vLLM, one tensor a layer for K and V.
 * @param form - 'kv-first': [2, blocks, blockSize, heads, headSize]; 'blocks-first': [blocks, 2, blockSize, ...].
 * @param order - 'NHD' as the shape says; 'HND': a head's tokens lie together ([..., heads, blockSize, headSize]).
 */
export function vllmAttention(
  layers: readonly LayerMemory[],
  shape: AttentionShape,
  form: 'kv-first' | 'blocks-first',
  order: 'NHD' | 'HND' = 'NHD',
): GroupMemory {
  const { blocks, blockSize, heads, headSize, elementBytes } = shape;
  const outer: [number[], Axis[]] =
    form === 'kv-first'
      ? [
          [2, blocks],
          ['plane', 'page'],
        ]
      : [
          [blocks, 2],
          ['page', 'plane'],
        ];
  const inner: [number[], Axis[]] =
    order === 'NHD'
      ? [
          [blockSize, heads, headSize],
          ['token', 'head', 'value'],
        ]
      : [
          [heads, blockSize, headSize],
          ['head', 'token', 'value'],
        ];
  const tensor = { elementBytes, shape: [...outer[0], ...inner[0]], axes: [...outer[1], ...inner[1]] };
  return pagedTensors(layers.map((layer) => ({ ...layer, ...tensor })));
}

/**
 * SGLang's MHA pool: for each layer a K and a V buffer [tokens, heads, headSize]. Its slots are tokens; with
 * pages, slot = page * pageSize + token. `tokens` are slots, those of the padding included: size + page size.
 */
export function sglangAttention(
  layers: readonly { readonly k: LayerMemory; readonly v: LayerMemory }[],
  shape: {
    readonly tokens: number;
    readonly pageSize: number;
    readonly heads: number;
    readonly headSize: number;
    readonly elementBytes: number;
  },
): GroupMemory {
  const { tokens, pageSize, heads, headSize, elementBytes } = shape;
  const axes: Axis[] = ['page', 'token', 'head', 'value'];
  const tensor = { elementBytes, shape: [Math.floor(tokens / pageSize), pageSize, heads, headSize], axes };
  return pagedTensors(layers.map(({ k, v }) => [k, v].map((plane): Tensor => ({ ...plane, ...tensor }))));
}

/** MLA: one latent a token, [blocks, blockSize, bytesPerToken], such as 576 values, or 656 bytes in fp8_ds_mla. */
export function mlaLatent(
  layers: readonly LayerMemory[],
  shape: { readonly blocks: number; readonly blockSize: number; readonly bytesPerToken: number },
): GroupMemory {
  const axes: Axis[] = ['page', 'token', 'value'];
  const tensor = { elementBytes: 1, shape: [shape.blocks, shape.blockSize, shape.bytesPerToken], axes };
  return pagedTensors(layers.map((layer) => ({ ...layer, ...tensor })));
}

/**
 * The indexer keys of DeepSeek-V3.2: [blocks, blockSize * (valueBytes + scaleBytes)], in every page first the
 * values of all its tokens, then their scales. To the model a token has one plane of both, values first.
 */
export function indexerKeys(
  layers: readonly LayerMemory[],
  shape: {
    readonly blocks: number;
    readonly blockSize: number;
    readonly valueBytes: number;
    readonly scaleBytes: number;
  },
): GroupMemory {
  const { blocks, blockSize, valueBytes, scaleBytes } = shape;
  const pageStrideBytes = blockSize * (valueBytes + scaleBytes);
  const planes = ({ memory, offsetBytes = 0 }: LayerMemory): PlaneParts[] => [
    [
      { memory, offsetBytes, pageStrideBytes, tokenStrideBytes: valueBytes, bytes: valueBytes },
      {
        memory,
        offsetBytes: offsetBytes + blockSize * valueBytes,
        pageStrideBytes,
        tokenStrideBytes: scaleBytes,
        bytes: scaleBytes,
      },
    ],
  ];
  return { pages: blocks, pageTokens: blockSize, layers: layers.map(planes) };
}
