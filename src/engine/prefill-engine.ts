/**
 * A prefill engine: takes requests from the scheduler, reads its side's part of their hits, forms forward
 * batches under the compute quota and hands each layer's KV on to the decode engines (paper, sections 4, 5).
 */
import type { NativeGeometry } from '../binding/index.js';
import { requestKey, type ControlMessage } from '../control/index.js';
import { DualPathError, isDualPathError } from '../errors/index.js';
import { BlockSpace, contiguousGeometry, stagingGeometry } from '../memory/index.js';
import { packBatch, type Assignment } from '../scheduler/index.js';
import type { TrafficManager } from '../traffic/index.js';
import { EarlyEvents } from './early-events.js';
import { FetchLoop } from './fetch-loop.js';
import { Mailbox } from './mailbox.js';
import type { HitStatistics, PrefillEngineOptions } from './options.js';
import { isCancelled, PrefillBatch, type BatchContext, type BatchPart } from './prefill-batch.js';
import { PrefillRequest } from './prefill-request.js';
import { asError } from './request.js';
import { Tasks } from './tasks.js';

/** Batches of a request that may be given up though none of their requests is to blame. */
const maxTries = 3;

export class PrefillEngine {
  readonly name: string;
  readonly traffic: TrafficManager;
  /** PE HBM: Layer Blocks of the batches under way. */
  readonly staging: BlockSpace;
  /** Where a slot's bytes are in PE HBM, and the arena that they are in. */
  readonly stagingGeometry: NativeGeometry;
  readonly hits: HitStatistics = { requests: 0, promptTokens: 0, hitTokens: 0, lostBlocks: 0 };
  readonly #options: PrefillEngineOptions;
  readonly #context: BatchContext;
  readonly #requests = new Map<string, PrefillRequest>();
  readonly #early = new EarlyEvents<PrefillRequest>();
  readonly #queue: PrefillRequest[] = [];
  readonly #batches = new Mailbox<PrefillBatch>();
  readonly #inFlight = new Set<PrefillBatch>();
  /** Requests until they are queued or have ended. */
  readonly #accepting = new Tasks();
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
    const { stagingBlocks, contiguous = false } = options;
    const geometry = contiguous ? contiguousGeometry : stagingGeometry;
    this.stagingGeometry = geometry(
      layout,
      stagingBlocks,
      windowLayers,
      `${this.name}/staging`,
      traffic.sharedMemory,
    );
    this.staging = new BlockSpace(traffic.engine, this.stagingGeometry, contiguous);
    this.#context = {
      traffic,
      staging: this.staging,
      control: options.control,
      windowLayers,
      layerwise,
      freeHits: options.freeHits ?? false,
    };
    this.#unlisten = options.control.listen(this.name, (from, message) => this.#onMessage(from, message));
    this.#loop = new FetchLoop(options, {
      load: () => this.#load(),
      accept: (assignment) => this.#accepting.add(this.#accept(assignment)),
      failed: (error) => this.#batches.close(asError(error)),
    });
  }

  /**
   * Forward batches as they are formed, until the engine is closed; the transfers of each are queued already.
   * Compute layer l when `batch.deviceWaits` hold and raise `batch.counters.computed`, holding the batch until
   * the device is through with it (`holdUntil`), or compute from JavaScript (`batch.layers()`). One consumer.
   */
  async *batches(): AsyncGenerator<PrefillBatch, void, void> {
    for await (const batch of this.#batches) if (!batch.givenUp) yield batch;
  }

  #load(): { unfinishedRequests: number; unfinishedTokens: number } {
    let unfinishedTokens = 0;
    for (const { tokens } of this.#requests.values()) unfinishedTokens += tokens.length;
    return { unfinishedRequests: this.#requests.size, unfinishedTokens };
  }

  async #accept(assignment: Assignment): Promise<void> {
    if (assignment.prefillEngine !== this.name) return;
    const { traffic } = this;
    const { scheduler, prompts } = this.#options;
    const request = new PrefillRequest(assignment, traffic, scheduler);
    this.#requests.set(request.key, request);
    this.#early.deliver(request.key, request);
    try {
      if (this.#closing !== undefined) throw closedError(this.name);
      request.limit(prompts, (error) => this.cancel(request.name, error, assignment.admission));
      await request.prepare(prompts, this.#context.freeHits);
      if (request.error !== undefined) throw request.error;
    } catch (error) {
      this.#endRequest(request, asError(error));
      return;
    }
    this.hits.requests++;
    this.hits.promptTokens += request.tokens.length;
    this.hits.hitTokens += request.cachedTokens;
    this.hits.lostBlocks += request.lostBlocks;
    this.#queue.push(request);
    this.#formBatches();
  }

  #onMessage(from: string, message: ControlMessage): void {
    const request = this.#requests.get(message.request);
    if (request !== undefined) {
      request.on(message);
      if (message.kind === 'abort') this.#drop(request);
      return;
    }
    // A decode engine may speak of a request before this engine has been given it.
    this.#early.keep(message.request, (late) => late.on(message));
    // Nothing of the request is in flight here, and nothing will be.
    if (message.kind === 'abort') this.#options.control.send(from, this.name, message);
  }

  /** The request is to end: now if it waits, else when whoever runs it is through with it. */
  #drop(request: PrefillRequest): void {
    const at = this.#queue.indexOf(request);
    if (at >= 0) {
      this.#queue.splice(at, 1);
      this.#endRequest(request, request.error!);
      return;
    }
    for (const batch of this.#inFlight) {
      if (batch.entries.every((entry) => entry.request.error !== undefined)) batch.abort();
    }
  }

  #formBatches(): void {
    while (this.#queue.length > 0 && this.#inFlight.size < (this.#options.maxBatches ?? 2)) {
      if (this.#closing !== undefined) return;
      try {
        if (!this.#formBatch()) return;
      } catch (error) {
        // Too large, or a table is full: batches in flight give back what they have.
        if (this.#inFlight.size > 0) return;
        this.#endRequest(this.#queue.shift()!, asError(error));
      }
    }
  }

  /** False while the next batch must wait for staging that a batch in flight holds. */
  #formBatch(): boolean {
    const { layout } = this.traffic;
    const wanted = Math.min(layout.blocksFor(this.#queue[0]!.tokens.length), this.staging.slots);
    if (this.#inFlight.size > 0 && wanted > this.staging.available) return false;
    const maxRequests = this.#options.maxRequestsPerBatch ?? 64;
    const work = this.#queue
      .slice(0, maxRequests)
      .map(({ name, cachedTokens, remainingTokens }) => ({ request: name, cachedTokens, remainingTokens }));
    const packed = packBatch(work, this.#options.timeModel, {
      quotaS: this.#options.quotaS,
      maxBatchBlocks: this.staging.available,
      blockTokens: layout.blockTokens,
      maxRequests,
    });
    const batch = new PrefillBatch(this.#context, this.#queue, packed);
    this.#queue.splice(0, packed.entries.length);
    this.#inFlight.add(batch);
    this.#batches.push(batch);
    void batch.settled.then(() => this.#afterBatch(batch));
    void batch.finished.then(() => {
      batch.release();
      this.#inFlight.delete(batch);
      this.#formBatches();
    });
    return true;
  }

  #afterBatch({ entries }: PrefillBatch): void {
    // Where one is to blame it ends, so that the others may try for as long as it takes.
    const blameless = entries.every(({ request, outcome }) => {
      return request.error === undefined && ('finishedUs' in outcome! || mayTryAgain(outcome!.error));
    });
    const again: PrefillRequest[] = [];
    for (const entry of entries) {
      if (this.#afterChunk(entry, blameless)) again.push(entry.request);
    }
    this.#queue.unshift(...again);
    // Whoever heard of one's end may have ended another.
    for (const request of again) if (request.error !== undefined) this.#drop(request);
    this.#formBatches();
  }

  /** True when the request goes back to the head of the queue. */
  #afterChunk({ request, newTokens, last, outcome }: BatchPart, counts: boolean): boolean {
    request.stage++;
    if ('finishedUs' in outcome!) {
      request.cachedTokens += newTokens;
      request.hitsSent = true;
      if (last && request.error === undefined) {
        this.#options.scheduler.complete(request.name, 'prefill', request.assignment.admission);
        this.#options.onPrefilled?.(request.name, outcome.finishedUs);
        this.#forget(request);
        return false;
      }
    } else {
      if (counts) request.tries++;
      if (!mayTryAgain(outcome!.error) || request.tries > maxTries) request.end(asError(outcome!.error));
    }
    if (request.error === undefined) return true;
    this.#endRequest(request, request.error);
    return false;
  }

  /** Ends a request of which nothing is in flight here, and tells the decode engine so. */
  #endRequest(request: PrefillRequest, cause: DualPathError): void {
    request.end(cause);
    const { name, key, assignment } = request;
    const error = request.error!;
    this.#options.control.send(assignment.decodeEngine, this.name, {
      kind: 'abort',
      request: key,
      code: error.code,
      message: error.message,
    });
    this.#forget(request);
    this.#options.scheduler.fail(name, error, assignment.admission);
  }

  #forget(request: PrefillRequest): void {
    request.unlimit();
    request.release();
    this.#requests.delete(request.key);
  }

  /**
   * Ends a request here, on behalf of its user or of the scheduler; one that has ended is none of its business.
   * A batch that has it runs on for the others.
   * @param admission of its assignment: then one that this engine has not been given yet is ended when it comes
   */
  cancel(name: string, error: DualPathError, admission?: number): void {
    let found = false;
    for (const request of this.#requests.values()) {
      if (request.name !== name || (admission !== undefined && request.assignment.admission !== admission))
        continue;
      found = true;
      request.end(error);
      this.#drop(request);
    }
    if (found || admission === undefined) return;
    this.#early.keep(requestKey({ request: name, admission }), (late) => late.end(error));
  }

  /** A decode engine is gone for good: its requests end, as if it had said so. */
  peerLost(decodeEngine: string): void {
    this.traffic.forgetPeer(decodeEngine);
    for (const { key, assignment } of this.#requests.values()) {
      if (assignment.decodeEngine !== decodeEngine) continue;
      const message = `decode engine '${decodeEngine}' was lost`;
      this.#onMessage(decodeEngine, { kind: 'abort', request: key, code: 'PEER_LOST', message });
    }
  }

  /**
   * Every request ends (CLOSED), peers no longer reach this engine's memory, then memory goes. Does not wait
   * for a device: it hears of the end by the signals of its batches. Idempotent.
   */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    await this.#loop.stop();
    const error = closedError(this.name);
    for (const request of this.#requests.values()) {
      request.end(error);
      this.#drop(request);
    }
    for (const batch of this.#inFlight) batch.abort();
    this.#batches.close();
    await this.traffic.close();
    for (const request of this.#requests.values()) request.peerStopped(error);
    await Promise.all([...this.#inFlight].map(({ settled }) => settled));
    await this.#accepting.settled();
    this.#unlisten();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/** The batch was given up, or a ring was full: no fault of the request's. */
function mayTryAgain(error: unknown): boolean {
  return isCancelled(error) || isDualPathError(error, 'CAPACITY_EXHAUSTED');
}

function closedError(name: string): DualPathError {
  return new DualPathError('CLOSED', `prefill engine '${name}' has been closed`, { engine: name });
}
