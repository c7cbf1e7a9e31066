/**
 * A forward batch on a prefill engine: chunks of requests that are computed together, layer by layer. Its
 * programs are queued at once; from then on native code moves every layer as the counters allow.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { ControlLink } from '../control/index.js';
import { DualPathError } from '../errors/index.js';
import {
  announceFreeStaging,
  BatchCounters,
  bufferToStaging,
  hitParts,
  stagingToDecodeBuffer,
  type HitParts,
} from '../flow/index.js';
import type { BlockList, BlockSpace } from '../memory/index.js';
import type { PackedBatch } from '../scheduler/index.js';
import type { TrafficManager } from '../traffic/index.js';
import type { Descriptor, Program, Wait } from '../transfer/index.js';
import { LayerRun, type BatchLayer } from './batch-layers.js';
import type { PrefillRequest } from './prefill-request.js';
import { Tasks } from './tasks.js';

/** One request's part of a batch. */
export interface BatchPart {
  readonly request: PrefillRequest;
  /** Tokens whose KV is staged; the chunk computes [cachedTokens, cachedTokens + newTokens). */
  readonly cachedTokens: number;
  readonly newTokens: number;
  readonly last: boolean;
  /** Staging of blocks [0, staging.count) of the sequence. */
  readonly staging: BlockList;
  readonly parts: HitParts;
  /** Counter of layers sent, all of the request's sends together. */
  readonly sent: number;
  readonly sends: number;
  program?: Program;
  /** Once the batch has settled: when the chunk was complete, or why it is not. */
  outcome?: { readonly finishedUs: number } | { readonly error: unknown };
}

export interface BatchContext {
  readonly traffic: TrafficManager;
  readonly staging: BlockSpace;
  readonly control: ControlLink;
  readonly windowLayers: number;
  readonly layerwise: boolean;
  readonly freeHits: boolean;
}

export class PrefillBatch {
  readonly entries: readonly BatchPart[];
  /** Predicted seconds of the whole forward. */
  readonly totalS: number;
  readonly counters: BatchCounters;
  /** Resolves when no transfer of the batch is in flight: what became of each entry is in its `outcome`. */
  readonly settled: Promise<void>;
  /** Resolves when the device is through with it, too: the staging is free. */
  readonly finished: Promise<void>;
  readonly #context: BatchContext;
  readonly #stop = new AbortController();
  readonly #holds = new Tasks();
  #state: 'running' | 'given up' | 'settled' = 'running';
  #layerRun: LayerRun | undefined;

  /**
   * The caller has made sure that the staging has room.
   * @throws CAPACITY_EXHAUSTED when the counters or the slot table are used up; then it has taken nothing
   */
  constructor(context: BatchContext, queue: readonly PrefillRequest[], packed: PackedBatch) {
    this.#context = context;
    this.totalS = packed.totalS;
    const { layout, engine } = context.traffic;
    const { windowLayers, layerwise } = context;
    const requests = packed.entries.length;
    this.counters = new BatchCounters(engine, layout.layers, windowLayers, layerwise, requests);
    const entries: BatchPart[] = [];
    this.entries = entries;
    try {
      for (const { index, newTokens } of packed.entries)
        entries.push(this.#plan(queue[index]!, index, newTokens));
    } catch (error) {
      this.release();
      throw error;
    }
    for (const { parts, sends } of entries) {
      const pieces = (parts.prefillBlocks > 0 ? 1 : 0) + parts.decodeSegments.length;
      this.counters.piecesIn += pieces;
      this.counters.piecesOut += sends;
    }
    this.settled = this.#settle();
    this.finished = this.#finish();
  }

  /**
   * Aborted when the batch has been given up and nothing of it is sent any more: a device that works on it
   * should stop, and may raise its counters to be done with it.
   */
  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  get givenUp(): boolean {
    return this.#state === 'given up';
  }

  /** The staging stays the batch's until `work` has settled, too: what a device still does with it. */
  holdUntil(work: Promise<unknown>): void {
    this.#holds.add(work);
  }

  #plan(request: PrefillRequest, index: number, newTokens: number): BatchPart {
    const { traffic, staging, freeHits } = this.#context;
    const { layout } = traffic;
    const { cachedTokens } = request;
    const slots = staging.tryTake(layout.blocksFor(cachedTokens + newTokens));
    if (slots === undefined) throw new DualPathError('INTERNAL', 'a batch was packed beyond the staging');
    const parts = freeHits
      ? { prefillBlocks: 0, decodeSegments: [] }
      : hitParts({
          hitBlocks: request.hitBlocks,
          prefillReadBlocks: request.assignment.prefillReadBlocks,
          cachedTokens,
          blockTokens: layout.blockTokens,
        });
    return {
      request,
      cachedTokens,
      newTokens,
      last: newTokens === request.remainingTokens,
      staging: slots,
      parts,
      sent: this.counters.sent(index),
      sends: !request.hitsSent && parts.prefillBlocks > 0 ? 2 : 1,
    };
  }

  #program(entry: BatchPart): Descriptor[] {
    const { traffic, staging } = this.#context;
    const { counters } = this;
    const { request, parts } = entry;
    const { blockTokens } = traffic.layout;
    const { peer, decode } = request;
    const descriptors: Descriptor[] = [];
    if (parts.prefillBlocks > 0) {
      descriptors.push(
        bufferToStaging(counters, {
          buffer: traffic.buffer.geometry,
          staging: staging.geometry,
          bufferSlots: request.bufferSlots,
          stagingSlots: entry.staging.offset,
          blocks: parts.prefillBlocks,
          blockTokens,
          computeFrom: entry.cachedTokens,
        }),
      );
    }
    if (entry.sends === 2) {
      const tail = blockTokens * traffic.layout.fullBlocksFor(request.tokens.length);
      descriptors.push(this.#send(entry, 0, parts.prefillBlocks * blockTokens, tail));
    }
    const end = entry.cachedTokens + entry.newTokens;
    descriptors.push(this.#send(entry, entry.cachedTokens, end, 0));
    if (parts.decodeSegments.length > 0) {
      const bump = announceFreeStaging(counters, {
        peer,
        freeCounter: decode.freeCounter,
        stage: request.stage,
      });
      if (bump !== undefined) descriptors.push(bump);
    }
    if (entry.last) {
      const waits = [{ counter: entry.sent, value: entry.sends * counters.layers }];
      descriptors.push({ ...this.#merged(request), waits });
    }
    return descriptors;
  }

  /** Tells the decode engine that the whole prompt is there; saying it again is harmless. */
  #merged({ peer, decode }: PrefillRequest): Descriptor {
    return { op: 'bump', peer, signals: [{ counter: decode.mergedCounter, value: 1, remote: true }] };
  }

  #send(entry: BatchPart, tokenBegin: number, tokenEnd: number, windowEnd: number): Descriptor {
    const { request, staging, sent } = entry;
    const { blockTokens } = this.#context.traffic.layout;
    const firstBlock = Math.floor(tokenBegin / blockTokens);
    return stagingToDecodeBuffer(this.counters, {
      peer: request.peer,
      staging: this.#context.staging.geometry,
      decodeBuffer: request.decode.geometry,
      stagingSlots: staging.offset + firstBlock,
      decodeSlots: request.decodeSlots + firstBlock,
      firstBlock,
      blocks: Math.ceil(tokenEnd / blockTokens) - firstBlock,
      tokenBegin,
      tokenEnd,
      sent,
      windowEnd,
    });
  }

  #tellDecodeEngine(entry: BatchPart): void {
    const { request, parts } = entry;
    const { traffic, control, staging } = this.#context;
    if (parts.decodeSegments.length === 0 && !entry.last) return;
    control.send(request.assignment.decodeEngine, traffic.name, {
      kind: 'stage',
      request: request.key,
      stage: request.stage,
      last: entry.last,
      hitBlocks: request.hitBlocks,
      geometry: staging.geometry,
      slots: traffic.engine.slots(entry.staging.offset, entry.staging.count),
      segments: parts.decodeSegments,
      arriveCounter: traffic.engine.counterHandle(this.counters.arrive),
      arriveStep: this.counters.arriveStep,
      windowLayers: this.counters.windowLayers,
    });
  }

  /**
   * KV of a layer of one entry in the staging, in place: [cachedTokens + newTokens, row bytes]; the hits are there and the rest may be
   * written between ready() and done() of the layer (batch.layers()). Of a contiguous engine.
   * @throws INVALID_ARGUMENT, NO_EXTERNAL_BUFFERS
   */
  rows({ staging, cachedTokens, newTokens }: BatchPart, layer: number): Uint8Array {
    const rows = this.#context.staging.rows(staging, layer);
    const { blockTokens } = this.#context.traffic.layout;
    return rows.subarray(0, (rows.length / staging.count / blockTokens) * (cachedTokens + newTokens));
  }

  /**
   * Hands what was sampled from the prompt's last logits to whoever decodes the request (`DecodeSequence.sampled`): the
   * first token, or several. Of the entry's last chunk, once.
   * @throws INVALID_ARGUMENT for another chunk
   */
  sampled({ request, last }: BatchPart, tokens: Uint32Array): void {
    if (!last) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `request '${request.name}': sampled() of a chunk that is not its last; sample when entry.last`,
      );
    }
    const { control, traffic } = this.#context;
    control.send(request.assignment.decodeEngine, traffic.name, {
      ...{ kind: 'sampled', request: request.key, tokens },
    });
  }

  /** What the device waits for before it computes layer l; then it raises counters.computed to l + 1. */
  get deviceWaits(): readonly Wait[] {
    const { counters } = this;
    return counters.layers > counters.windowLayers
      ? [counters.arrived(), counters.stagingFree()]
      : [counters.arrived()];
  }

  /**
   * The layers, for computing from JavaScript rather than on a device that waits on counters itself. Once a
   * batch. Leaving the loop before its end gives the batch up; nothing must use the staging by then.
   */
  *layers(): Generator<BatchLayer, void, void> {
    if (this.#layerRun !== undefined) {
      throw new DualPathError('INVALID_ARGUMENT', 'layers() of a batch was called before; call it once');
    }
    const run = new LayerRun(this.#context.traffic.engine, this.counters, this.deviceWaits);
    this.#layerRun = run;
    this.holdUntil(run.over);
    if (this.givenUp) run.giveUp();
    let whole = false;
    try {
      yield* run.layers();
      whole = true;
    } finally {
      if (!whole) {
        this.abort();
        run.leave();
      }
    }
  }

  /** Gives the batch up: no more is begun, and its requests may be tried again. Idempotent. */
  abort(): void {
    if (this.#state !== 'running') return;
    this.#state = 'given up';
    const { engine, name } = this.#context.traffic;
    for (const { program, parts, request } of this.entries) {
      if (program !== undefined) engine.cancel(program);
      if (parts.decodeSegments.length === 0) continue;
      this.#context.control.send(request.assignment.decodeEngine, name, {
        kind: 'stage-abort',
        request: request.key,
        stage: request.stage,
      });
    }
    this.#layerRun?.giveUp();
  }

  async #settle(): Promise<void> {
    await Promise.all(this.entries.map((entry) => this.#run(entry)));
    if (this.#state === 'running') this.#state = 'settled';
  }

  async #finish(): Promise<void> {
    await this.settled;
    if (this.givenUp) {
      // Not before: kernels that a device skips raise `computed` too, and what they left would have been sent.
      // And not at once: whoever has just taken the batch is about to listen.
      await nextTurn();
      this.#stop.abort();
    }
    await this.#holds.settled();
  }

  /** A batch is computed as a whole: where one entry fails, the others end too, and may be tried again. */
  async #run(entry: BatchPart): Promise<void> {
    const { request, parts } = entry;
    const works = [
      this.#transfer(entry),
      parts.decodeSegments.length > 0 ? request.stageDone(request.stage).then(() => 0) : Promise.resolve(0),
    ];
    this.#tellDecodeEngine(entry);
    for (const work of works) work.catch(() => this.abort());
    const [sent, staged] = await Promise.allSettled(works);
    // Sent means that all that was staged had come, however the decode engine's sends were ended.
    if (sent!.status === 'fulfilled') {
      entry.outcome = { finishedUs: sent!.value };
      return;
    }
    const other: unknown = staged!.status === 'rejected' ? staged!.reason : undefined;
    const error: unknown = isCancelled(sent!.reason) && other !== undefined ? other : sent!.reason;
    entry.outcome = await this.#sentAllTheSame(entry).catch(() => ({ error }));
  }

  /**
   * Of a program that was cancelled after all of a prompt had been sent: whether the decode engine was told so is
   * not known. It must not be sent again then, as that memory may be another's by now.
   */
  async #sentAllTheSame(entry: BatchPart): Promise<{ finishedUs: number }> {
    const { engine } = this.#context.traffic;
    if (!entry.last || engine.counter(entry.sent) < entry.sends * this.counters.layers) {
      throw new DualPathError('CANCELLED', 'not all of the prompt was sent');
    }
    return { finishedUs: (await engine.submit([this.#merged(entry.request)]).done).finishedUs };
  }

  /** @returns when the chunk was complete */
  async #transfer(entry: BatchPart): Promise<number> {
    entry.program = this.#context.traffic.engine.submit(this.#program(entry));
    return (await entry.program.done).finishedUs;
  }

  /** After finished has resolved. */
  release(): void {
    for (const { staging } of this.entries) staging.release();
    this.counters.release();
  }
}

/** Cancelled because the batch was given up, not by a fault of its own. */
export function isCancelled(error: unknown): boolean {
  return error instanceof DualPathError && error.code === 'CANCELLED';
}
