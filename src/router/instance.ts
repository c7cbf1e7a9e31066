import { PrefixIndex } from './prefix-index.js';
import type { ReportedBlocks } from './reported-blocks.js';
import { RequestList } from './request.js';

export interface InstanceOptions {
  /** Unlike every other instance's; decides its places on the rings. */
  readonly name: string;
  /** Share of the keys, in proportion to the others'; default 1. */
  readonly weight?: number | undefined;
  /** Tokens that its prefix cache holds. */
  readonly cacheTokens: number;
}

/** An instance as the router accounts for it. Only the router changes it. */
export class Instance {
  readonly name: string;
  readonly weight: number;
  /** Counts instances in the order they came; never used again. */
  readonly index: number;
  healthy = true;
  /** Takes no new requests: what it has is finished elsewhere or there. */
  draining = false;
  /** Kept by Cluster.updateRoutable. */
  routable = false;
  /** What it should hold, by what was sent there. */
  readonly cache: PrefixIndex;
  /** What it holds by its own account; null: it gives none. */
  reported: ReportedBlocks | null = null;
  /** Not dispatched yet; may still go elsewhere. */
  readonly waiting = new RequestList();
  waitingTokens = 0;
  /** With the engine; cannot move. */
  readonly dispatched = new RequestList();
  dispatchedTokens = 0;
  /** When the engine began the oldest dispatched request. */
  startedS = 0;
  /** Uncached tokens that it has from others, by its own last report. */
  foreignTokens = 0;
  /** Past their first token. */
  decodingRequests = 0;
  /** Blocks of all requests that have not ended. */
  activeBlocks = 0;

  constructor(options: InstanceOptions, index: number, blockTokens: number) {
    this.index = index;
    this.name = options.name;
    this.weight = options.weight ?? 1;
    this.cache = new PrefixIndex(Math.max(1, Math.floor(options.cacheTokens / blockTokens)));
  }

  get requests(): number {
    return this.waiting.size + this.dispatched.size + this.decodingRequests;
  }
}
