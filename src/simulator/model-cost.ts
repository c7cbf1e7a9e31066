import { DualPathError } from '../errors/index.js';
import { closest } from '../layout/index.js';

/**
 * What a model costs to compute, and what its KV-Cache weighs. FLOPs are of one token over all layers, a multiply-add
 * counted as two; from public configurations, so arithmetic and not fitted.
 */
export interface ModelCost {
  readonly name: string;
  readonly source: string;
  readonly layers: number;
  /** KV-Cache of a token as stored and moved; for a window, what grows with the context. */
  readonly bytesPerToken: number;
  /** The same as the paper's Table 1 counts it, where that differs. */
  readonly tableBytesPerToken: number;
  /** Projections, experts, output: 2 x active parameters. */
  readonly linearFlops: number;
  /** Attention of a new token whatever its context: sparse over a fixed top-k, or a window. */
  readonly attentionFlops: number;
  /** Attention, or its indexer, for each token of context. */
  readonly attentionFlopsPerContextToken: number;
  /** Weights as served. */
  readonly weightBytes: number;
  /** Weights are spread over the engines of a role (experts), not held whole by each group of `tensorParallel`. */
  readonly isSpread: boolean;
  /** GPUs that make an engine. The paper's engine is one GPU; larger dense models need several. */
  readonly gpusPerEngine: number;
  /** Bytes that decoding one token sends and receives in collectives between engines. */
  readonly collectiveBytesPerToken: number;
}

/**
 * Multi-head latent attention in its absorbed form: a query and a cached token cost heads x (512 + 64 for the score +
 * 512 for the value) multiply-adds a layer.
 */
const mlaPairFlops = (heads: number, layers: number): number => 2 * heads * (512 + 64 + 512) * layers;
/** Attention with heads of one size: score and value. */
const headsPairFlops = (heads: number, headDim: number, layers: number): number =>
  4 * heads * headDim * layers;
/** The indexer of sparse attention: one score of its own heads for each cached token. */
const indexerPairFlops = (heads: number, headDim: number, layers: number): number =>
  2 * heads * headDim * layers;

/** DeepSeek-V3: 58 expert layers, 8 experts a token; dispatch in FP8, combine in BF16, hidden size 7,168. */
const deepSeekCollectiveBytes = 58 * 8 * 7168 * (1 + 2);

/** 2 x (2560 x 1536 x 3 of 8 experts x 29 layers + dense layer + MLA projections of 30 layers + output). */
const ds27bLinear = 2 * (8 * 3 * 2560 * 1536 * 29 + 3 * 2560 * 12_288 + 31.9e6 * 30 + 129_280 * 2560);

export const modelCosts: readonly ModelCost[] = [
  {
    name: 'ds-v3.2-660b',
    source:
      'DeepSeek-V3.2 config: 61 layers, 37 B active of 671 B parameters, 128 heads, indexer 64 x 128, top 2,048; ' +
      '656 + 132 bytes of KV a token and layer',
    layers: 61,
    bytesPerToken: 61 * (656 + 132),
    tableBytesPerToken: 61 * 656,
    linearFlops: 2 * 37e9,
    attentionFlops: 2048 * mlaPairFlops(128, 61),
    attentionFlopsPerContextToken: indexerPairFlops(64, 128, 61),
    weightBytes: 671e9,
    isSpread: true,
    gpusPerEngine: 1,
    collectiveBytesPerToken: deepSeekCollectiveBytes,
  },
  {
    name: 'ds-27b',
    source:
      'DualPath: hidden 2,560, 30 layers, 32 heads, 72 experts (6 active, 2 shared) of 1,536, indexer 32 x 64, top 1,024; ' +
      "MLA sizes, not given, are DeepSeek-V3.2's",
    layers: 30,
    bytesPerToken: 30 * (656 + 68),
    tableBytesPerToken: 30 * 656,
    linearFlops: ds27bLinear,
    attentionFlops: 1024 * mlaPairFlops(32, 30),
    attentionFlopsPerContextToken: indexerPairFlops(32, 64, 30),
    weightBytes: 27e9,
    isSpread: true,
    gpusPerEngine: 1,
    collectiveBytesPerToken: 29 * 6 * 2560 * (1 + 2),
  },
  {
    name: 'qwen2.5-32b',
    source:
      'Qwen2.5-32B config: 64 layers, 31 B parameters without embeddings, 40 heads and 8 KV heads of 128, FP16',
    layers: 64,
    bytesPerToken: 64 * 2 * 8 * 128 * 2,
    tableBytesPerToken: 64 * 2 * 8 * 128 * 2,
    linearFlops: 2 * 32.5e9,
    attentionFlops: 0,
    attentionFlopsPerContextToken: headsPairFlops(40, 128, 64),
    weightBytes: 65e9,
    isSpread: false,
    gpusPerEngine: 2,
    collectiveBytesPerToken: 0,
  },
  {
    name: 'gpt-oss-120b',
    source:
      'gpt-oss-120b config: 36 layers, 5.1 B active of 117 B parameters, 64 heads and 8 KV heads of 64, every other layer ' +
      'in a window of 128; Table 1 agrees with 8-bit KV, served 16-bit here as its preset',
    layers: 36,
    bytesPerToken: 36 * 2 * 8 * 64 * 2,
    tableBytesPerToken: 18 * 2 * 8 * 64,
    linearFlops: 2 * 5.1e9,
    attentionFlops: 128 * headsPairFlops(64, 64, 18),
    attentionFlopsPerContextToken: headsPairFlops(64, 64, 18),
    weightBytes: 63e9,
    isSpread: true,
    gpusPerEngine: 1,
    collectiveBytesPerToken: 36 * 4 * 2880 * (1 + 2),
  },
  {
    name: 'qwen3-235b-a22b',
    source:
      'Qwen3-235B-A22B config: 94 layers, 22 B active of 235 B parameters, 64 heads and 4 KV heads of 128; Table 1 agrees ' +
      'with 8-bit KV, which is served here, too',
    layers: 94,
    bytesPerToken: 94 * 2 * 4 * 128,
    tableBytesPerToken: 94 * 2 * 4 * 128,
    linearFlops: 2 * 22e9,
    attentionFlops: 0,
    attentionFlopsPerContextToken: headsPairFlops(64, 128, 94),
    weightBytes: 235e9,
    isSpread: true,
    gpusPerEngine: 1,
    collectiveBytesPerToken: 94 * 8 * 4096 * (1 + 2),
  },
  {
    name: 'ds-v3-660b',
    source:
      'DeepSeek-V3 config: as DeepSeek-V3.2, dense attention instead of indexer and top-k; 656 bytes a token and layer',
    layers: 61,
    bytesPerToken: 61 * 656,
    tableBytesPerToken: 61 * 656,
    linearFlops: 2 * 37e9,
    attentionFlops: 0,
    attentionFlopsPerContextToken: mlaPairFlops(128, 61),
    weightBytes: 671e9,
    isSpread: true,
    gpusPerEngine: 1,
    collectiveBytesPerToken: deepSeekCollectiveBytes,
  },
];

/** @throws INVALID_ARGUMENT with the name that comes near */
export function modelCostOf(name: string): ModelCost {
  const found = modelCosts.find((model) => model.name === name);
  if (found) return found;
  const names = modelCosts.map((model) => model.name);
  const near = closest(name, names);
  throw new DualPathError(
    'INVALID_ARGUMENT',
    `nothing is known of what model ${name} costs: ${near === undefined ? '' : `did you mean ${near}? `}Use ${names.join(', ')}`,
    { model: name },
  );
}

/** FLOPs of one new token behind `contextTokens`. */
export function flopsPerToken(model: ModelCost, contextTokens: number): number {
  return model.linearFlops + model.attentionFlops + model.attentionFlopsPerContextToken * contextTokens;
}

/** The paper's Table 1: KV-Cache read over computation, in bytes a FLOP; GB per PFLOP is a million times that. */
export function cacheToCompute(model: ModelCost, contextTokens: number, appendTokens: number): number {
  const bytes = contextTokens * model.tableBytesPerToken;
  return bytes / (appendTokens * flopsPerToken(model, contextTokens));
}
