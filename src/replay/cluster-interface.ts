/** What a replay runs on: engines of this process, or of others. */
import type { PromptSource } from '../engine/index.js';
import type { DualPathError } from '../errors/index.js';
import type { LocalScheduler, RequestDescription, RequestFailure } from '../scheduler/index.js';
import type { BlockStore } from '../storage/index.js';
import type { TrafficManager } from '../traffic/index.js';
import type { ClusterOptions, ReplayMode } from './options.js';
import type { ClusterTotals } from './result.js';

/** What the engines have to ask and to tell. */
export interface ClusterEvents {
  readonly prompts: PromptSource;
  /** The tokens that a request generates. */
  readonly reply: (request: string) => Uint32Array;
  /** The prompt's KV is at its decode engine (CLOCK_MONOTONIC of this host). */
  readonly prefilled: (request: string, finishedUs: number) => void;
  /** That prefill engine gave it up; its decode engine may have got all the same. */
  readonly prefillFailed: (request: string) => void;
  /** Its sequence is over and its memory free. */
  readonly ended: (request: string, persistError: DualPathError | undefined) => void;
  /** It is over for good. */
  readonly failed: (failure: RequestFailure) => void;
  /** It is tried once more. */
  readonly retried: (failure: RequestFailure) => void;
  /** An engine cannot go on. */
  readonly stopped: (error: unknown) => void;
}

export interface ReplayCluster {
  readonly store: BlockStore;
  /** Undefined: in another process. */
  readonly scheduler: LocalScheduler | undefined;
  /** Looks prompts up for the scheduler; moves nothing. */
  readonly front: TrafficManager;
  /** What the scheduler and the engines call a request, for logs. */
  idOf(request: string): string;
  /** Resolves when the scheduler has it; how it ends is an event. */
  submit(request: RequestDescription): Promise<void>;
  totals(): Promise<ClusterTotals>;
  close(): Promise<void>;
}

export type OpenCluster = (
  options: ClusterOptions,
  mode: ReplayMode,
  lanes: number,
  events: ClusterEvents,
) => Promise<ReplayCluster>;
