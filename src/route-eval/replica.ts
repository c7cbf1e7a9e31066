import { PrefixIndex, type RoutedRequest } from '../router/index.js';

export interface ReplicaOptions {
  readonly blockTokens: number;
  readonly cacheTokens: number;
  readonly prefillSPerToken: number;
}

/**
 * An emulated replica: a real LRU prefix cache, first come first served, one prefill at a time, which takes a fixed
 * time for each token that is not cached. A prompt is cached once it is computed.
 */
export class EmulatedReplica {
  readonly cache: PrefixIndex;
  readonly #options: ReplicaOptions;
  readonly #queue: RoutedRequest[] = [];
  #running: RoutedRequest | null = null;
  /** Blocks of the running prompt that were cached when it began. */
  hitBlocks = 0;

  constructor(options: ReplicaOptions) {
    this.#options = options;
    this.cache = new PrefixIndex(Math.floor(options.cacheTokens / options.blockTokens));
  }

  get running(): RoutedRequest | null {
    return this.#running;
  }

  get queued(): number {
    return this.#queue.length;
  }

  enqueue(request: RoutedRequest): void {
    this.#queue.push(request);
  }

  /** Begins the next prefill and returns its duration in seconds; null where one runs or none waits. */
  start(): number | null {
    if (this.#running !== null) return null;
    const request = this.#queue.shift();
    if (request === undefined) return null;
    const { blockTokens, prefillSPerToken } = this.#options;
    this.#running = request;
    this.hitBlocks = this.cache.match(request.keys, request.firstBlock, request.hitBlocksMax);
    return (request.promptTokens - this.hitBlocks * blockTokens) * prefillSPerToken;
  }

  /** The running prefill is done. */
  finish(): RoutedRequest {
    const request = this.#running!;
    this.#running = null;
    this.cache.touch(request.keys, request.firstBlock, request.blocks);
    return request;
  }
}
