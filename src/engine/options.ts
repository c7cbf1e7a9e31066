import type { ControlLink } from '../control/index.js';
import type { SchedulerClient, TimeModel } from '../scheduler/index.js';
import type { CallOptions, TrafficManager } from '../traffic/index.js';

/** Where an engine finds the tokens of a request it has been assigned. */
export interface PromptSource {
  /** The prompt; must not change while the request runs. */
  prompt(request: string): Uint32Array | Promise<Uint32Array>;
  /** Most tokens the request may generate. */
  maxNewTokens(request: string): number;
  /**
   * The user's signal and deadline, from when the engine is given the request until it is through with it: then the
   * request ends with CANCELLED or DEADLINE on both sides, when nothing of it is in flight any more.
   */
  limits?(request: string): CallOptions;
}

export interface EngineOptions {
  readonly traffic: TrafficManager;
  readonly scheduler: SchedulerClient;
  /** The scheduler's group of this engine alone. */
  readonly group: string;
  readonly control: ControlLink;
  readonly prompts: PromptSource;
  /**
   * HBM for an engine without page tables: of each layer a sequence's KV lies together, [tokens, row bytes], and is
   * reached by rows(). At most 1 GiB. Default false: blocks lie wherever there is room.
   */
  readonly contiguous?: boolean;
}

export interface PrefillEngineOptions extends EngineOptions {
  /** Slots of PE HBM: each one Layer Block for every layer of the window. */
  readonly stagingBlocks: number;
  /** Layers of staging; default 4. Without layerwise prefill it is all layers. */
  readonly windowLayers?: number;
  /** Transfers of a layer overlap with the computing of others (paper, layerwise prefill); default true. */
  readonly layerwise?: boolean;
  /** Hits are there without any I/O (Oracle, for comparison); default false. */
  readonly freeHits?: boolean;
  readonly timeModel: TimeModel;
  /** Compute quota: most predicted seconds of attention in a forward batch; the paper's 0.3. */
  readonly quotaS: number;
  readonly maxRequestsPerBatch?: number;
  /** Forward batches whose transfers may be under way at once; default 2. */
  readonly maxBatches?: number;
  /** The request's whole prompt KV is in the DE buffer (CLOCK_MONOTONIC). Must not throw. */
  readonly onPrefilled?: (request: string, finishedUs: number) => void;
}

export interface DecodeEngineOptions extends EngineOptions {
  /** Slots of DE HBM: each one block of a sequence, every layer. */
  readonly hbmBlocks: number;
  /** As the prefill engines have it. */
  readonly freeHits?: boolean;
}

/** What the store's look-ups and reads came to, for reports. */
export interface HitStatistics {
  requests: number;
  promptTokens: number;
  /** Tokens whose KV came from the store. */
  hitTokens: number;
  /** Blocks that were found and then could not be read: computed anew. */
  lostBlocks: number;
}
