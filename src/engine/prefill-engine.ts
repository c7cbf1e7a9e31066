/**
 * A prefill engine: takes requests from the scheduler, reads its side's part of their hits, forms forward
 * batches under the compute quota and hands each layer's KV on to the decode engines (paper, sections 4, 5).
 */
import type { ControlMessage } from '../control/index.js';
import { DualPathError, isDualPathError } from '../errors/index.js';
import { BlockSpace, stagingGeometry } from '../memory/index.js';
import { packBatch, type Assignment, type PackedBatch } from '../scheduler/index.js';
import type { TrafficManager } from '../traffic/index.js';
import { asError, FetchLoop } from './fetch-loop.js';
import { Mailbox } from './mailbox.js';
import type { HitStatistics, PrefillEngineOptions } from './options.js';
import { isCancelled, PrefillBatch, type BatchContext, type BatchPart } from './prefill-batch.js';
import { PrefillRequest } from './prefill-request.js';

const maxTries = 3;
/** Requests whose messages are kept though the request is not known (yet). */
const maxEarly = 4096;

export class PrefillEngine {
  readonly name: string;
  readonly traffic: TrafficManager;
  /** PE HBM: Layer Blocks of the batches under way. */
  readonly staging: BlockSpace;
  readonly hits: HitStatistics = { requests: 0, promptTokens: 0, hitTokens: 0, lostBlocks: 0 };
  readonly #options: PrefillEngineOptions;
  readonly #context: BatchContext;
  readonly #requests = new Map<string, PrefillRequest>();
  readonly #queue: PrefillRequest[] = [];
  readonly #batches = new Mailbox<PrefillBatch>();
  readonly #inFlight = new Set<PrefillBatch>();
  readonly #tries = new Map<PrefillRequest, number>();
  readonly #unlisten: () => void;
  readonly #loop: FetchLoop;
  #closing: Promise<void> | undefined;

  constructor(options: PrefillEngineOptions) {
    const { traffic } = options;
    const { layout } = traffic;
    this.name = traffic.name;
    this.traffic = traffic;
    this.#options = options;
    const layerwise = options.layerwise ?? true;
    const windowLayers = layerwise ? Math.min(options.windowLayers ?? 4, layout.layers) : layout.layers;
    this.staging = new BlockSpace(
      traffic.engine,
      stagingGeometry(layout, options.stagingBlocks, windowLayers, `${this.name}/staging`),
    );
    this.#context = {
      traffic,
      staging: this.staging,
      control: options.control,
      windowLayers,
      layerwise,
      freeHits: options.freeHits ?? false,
    };
    this.#unlisten = options.control.listen(this.name, (from, message) => this.#onMessage(from, message));
    this.#loop = new FetchLoop(
      options,
      () => this.#load(),
      (assignment) => void this.#accept(assignment),
    );
  }

  /**
   * Forward batches as they are formed; the transfers of each are queued already. Compute layer l when
   * `batch.deviceWaits` hold (or `layer.ready()` resolves) and say so. One consumer.
   */
  batches(): AsyncIterable<PrefillBatch> {
    return this.#batches;
  }

  #load(): { unfinishedRequests: number; unfinishedTokens: number } {
    let unfinishedTokens = 0;
    for (const { tokens } of this.#requests.values()) unfinishedTokens += tokens.length;
    return { unfinishedRequests: this.#requests.size, unfinishedTokens };
  }

  async #accept(assignment: Assignment): Promise<void> {
    if (assignment.prefillEngine !== this.name) return;
    const tokens = await this.#options.prompts.prompt(assignment.request);
    const request = new PrefillRequest(assignment, tokens, this.traffic, this.#options.scheduler);
    this.#requests.set(request.name, request);
    for (const message of this.#takeEarly(request.name)) request.on(message);
    try {
      if (this.#closing !== undefined) throw closedError(this.name);
      await request.prepare(this.#context.freeHits);
      this.hits.requests++;
      this.hits.promptTokens += tokens.length;
      this.hits.hitTokens += request.cachedTokens;
      this.hits.lostBlocks += request.lostBlocks;
      this.#queue.push(request);
      this.#formBatches();
    } catch (error) {
      this.#endRequest(request, asError(error));
    }
  }

  // A decode engine may speak of a request before this engine has fetched it.
  readonly #early = new Map<string, ControlMessage[]>();

  #takeEarly(request: string): ControlMessage[] {
    const messages = this.#early.get(request) ?? [];
    this.#early.delete(request);
    return messages;
  }

  #keepEarly(from: string, message: ControlMessage): void {
    if (message.kind === 'abort') {
      // Nothing of the request is in flight here, and nothing will be.
      this.#options.control.send(from, this.name, message);
    }
    this.#early.set(message.request, [...(this.#early.get(message.request) ?? []), message]);
    if (this.#early.size <= maxEarly) return;
    const [oldest] = this.#early.keys();
    this.#early.delete(oldest!);
  }

  #onMessage(from: string, message: ControlMessage): void {
    const request = this.#requests.get(message.request);
    if (request === undefined) {
      this.#keepEarly(from, message);
      return;
    }
    request.on(message);
    if (message.kind === 'abort') this.#dropQueued(request);
  }

  /** Ends a request that waits; one that prepares or is in a batch is ended by whoever runs it. */
  #dropQueued(request: PrefillRequest): void {
    const at = this.#queue.indexOf(request);
    if (at < 0) return;
    this.#queue.splice(at, 1);
    this.#endRequest(request, request.error!);
  }

  #formBatches(): void {
    while (this.#queue.length > 0 && this.#inFlight.size < (this.#options.maxBatches ?? 2)) {
      const packed = this.#pack();
      if (packed === undefined) return;
      const requests = this.#queue.splice(0, packed.entries.length);
      const batch = new PrefillBatch(this.#context, requests, packed);
      this.#inFlight.add(batch);
      this.#batches.push(batch);
      void batch.finished.then(() => this.#afterBatch(batch));
    }
  }

  /** The next batch, or undefined while it must wait for staging that a batch in flight holds. */
  #pack(): PackedBatch | undefined {
    const { layout } = this.traffic;
    const head = this.#queue[0]!;
    const wanted = Math.min(layout.blocksFor(head.tokens.length), this.staging.slots);
    if (this.#inFlight.size > 0 && wanted > this.staging.available) return undefined;
    const work = this.#queue.map(({ name, cachedTokens, remainingTokens }) => ({
      request: name,
      cachedTokens,
      remainingTokens,
    }));
    try {
      return packBatch(work, this.#options.timeModel, {
        quotaS: this.#options.quotaS,
        maxBatchBlocks: this.staging.available,
        blockTokens: layout.blockTokens,
        maxRequests: this.#options.maxRequestsPerBatch ?? 64,
      });
    } catch (error) {
      if (!isDualPathError(error, 'REQUEST_TOO_LARGE')) throw error;
      if (this.#inFlight.size > 0) return undefined;
      this.#queue.shift();
      this.#endRequest(head, error);
      return this.#queue.length > 0 ? this.#pack() : undefined;
    }
  }

  #afterBatch(batch: PrefillBatch): void {
    batch.release();
    this.#inFlight.delete(batch);
    const again: PrefillRequest[] = [];
    for (const entry of batch.entries) {
      if (this.#afterChunk(entry)) again.push(entry.request);
    }
    this.#queue.unshift(...again);
    this.#formBatches();
  }

  /** True when the request goes back to the head of the queue. */
  #afterChunk({ request, newTokens, last, outcome }: BatchPart): boolean {
    request.stage++;
    if (outcome !== undefined && 'finishedUs' in outcome) {
      request.cachedTokens += newTokens;
      if (last && request.error === undefined) {
        this.#options.scheduler.complete(request.name, 'prefill', request.assignment.epoch);
        this.#options.onPrefilled?.(request.name, outcome.finishedUs);
        this.#forget(request);
        return false;
      }
    }
    const tries = (this.#tries.get(request) ?? 0) + 1;
    const failure = outcome !== undefined && 'error' in outcome ? outcome.error : undefined;
    if (failure !== undefined) this.#tries.set(request, tries);
    const retry =
      request.error === undefined && (failure === undefined || (isCancelled(failure) && tries <= maxTries));
    if (retry && this.#closing === undefined) return true;
    this.#endRequest(request, request.error ?? asError(failure ?? closedError(this.name)));
    return false;
  }

  /** Ends a request of which nothing is in flight here, and tells the decode engine so. */
  #endRequest(request: PrefillRequest, error: DualPathError): void {
    request.end(error);
    this.#options.control.send(request.assignment.decodeEngine, this.name, {
      kind: 'abort',
      request: request.name,
      code: error.code,
      message: error.message,
    });
    this.#options.scheduler.fail(request.name, error, request.assignment.epoch);
    this.#forget(request);
  }

  #forget(request: PrefillRequest): void {
    request.release();
    this.#requests.delete(request.name);
    this.#tries.delete(request);
  }

  /** Ends a request here, on behalf of its user or of the scheduler. Unknown ones are none of its business. */
  cancel(name: string, error: DualPathError): void {
    const request = this.#requests.get(name);
    if (request === undefined) return;
    request.end(error);
    this.#dropQueued(request);
  }

  /** A decode engine is gone for good: its requests end, as if it had said so. */
  peerLost(decodeEngine: string): void {
    this.traffic.forgetPeer(decodeEngine);
    for (const { name, assignment } of this.#requests.values()) {
      if (assignment.decodeEngine !== decodeEngine) continue;
      const message = `decode engine '${decodeEngine}' was lost`;
      this.#onMessage(decodeEngine, { kind: 'abort', request: name, code: 'PEER_LOST', message });
    }
  }

  /** Every request ends (CLOSED), peers no longer reach this engine's memory, then memory goes. Idempotent. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    await this.#loop.stop();
    const error = closedError(this.name);
    for (const request of this.#queue.splice(0)) this.#endRequest(request, error);
    for (const request of this.#requests.values()) request.end(error);
    for (const batch of this.#inFlight) batch.abort();
    this.#batches.close();
    await this.traffic.close();
    this.#unlisten();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

function closedError(name: string): DualPathError {
  return new DualPathError('CLOSED', `prefill engine '${name}' has been closed`, { engine: name });
}
