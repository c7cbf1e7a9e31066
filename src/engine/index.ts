/** PrefillEngine and DecodeEngine: what an inference engine embeds that wants scheduling and both read paths. */
export { DecodeEngine } from './decode-engine.js';
export { DecodeSequence, type SequenceResult } from './decode-sequence.js';
export type {
  DecodeEngineOptions,
  EngineOptions,
  HitStatistics,
  PrefillEngineOptions,
  PromptSource,
} from './options.js';
export type { BatchLayer } from './batch-layers.js';
export { PrefillBatch, type BatchPart } from './prefill-batch.js';
export { PrefillEngine } from './prefill-engine.js';
