import { LinearTimeModel, type EngineCapacity } from '../../scheduler/index.js';
import type { ClusterOptions } from './cluster.js';

/**
 * DeepSeek-V3.2 660B on the paper's testbed, as public configurations and the paper's figures give it: 48,068
 * bytes of KV a token (61 layers of 656, and the indexer's 132), 74 GFLOP a token outside attention, 35 in
 * sparse attention over the top 2,048, 33 in the indexer at 32.7K tokens of context, 275 TFLOP/s an engine.
 */
const flopsPerS = 275e12;
export const bytesPerToken = 48_068;
export const blockTokens = 64;
export const timeModel = new LinearTimeModel({
  baseS: 0.05,
  perNewTokenS: 74e9 / flopsPerS,
  perAttentionTokenS: 35e9 / flopsPerS,
  perAttentionPairS: 33e9 / 32_700 / flopsPerS,
});
export const quotaS = 0.3;
/** 400 Gb/s, of which reads get 78 %. */
export const linkBytesPerS = 50e9 * 0.784;
const enginesPerNode = 8;
/** 80 GB a node and engines' HBM for 1.25 M tokens. */
const bufferBlocks = Math.floor(80e9 / enginesPerNode / (bytesPerToken * blockTokens));
const decodeHbmBlocks = Math.floor(1.25e6 / blockTokens);

export interface Shape {
  readonly prefillNodes: number;
  readonly decodeNodes: number;
}

/** A node a group, eight engines a node. */
export function capacities({ prefillNodes, decodeNodes }: Shape): EngineCapacity[] {
  const node = (role: 'prefill' | 'decode', n: number): EngineCapacity[] =>
    Array.from({ length: enginesPerNode }, (_, e) => ({
      engine: `${role}-${n}-${e}`,
      node: `${role}-${n}`,
      group: `${role}-${n}`,
      role,
      bufferBlocks,
      hbmBlocks: role === 'prefill' ? 0 : decodeHbmBlocks,
      readRateBytesPerS: linkBytesPerS,
    }));
  return [
    ...Array.from({ length: prefillNodes }, (_, n) => node('prefill', n)).flat(),
    ...Array.from({ length: decodeNodes }, (_, n) => node('decode', n)).flat(),
  ];
}

export function clusterOptions(engines: readonly EngineCapacity[]): ClusterOptions {
  return {
    engines,
    blockTokens,
    blockBytes: blockTokens * bytesPerToken,
    timeModel,
    quotaS,
    fetchS: 0.05,
    decodeStepS: 0.0233,
    decodeStepPerSequenceS: 0.002,
  };
}
