/**
 * A forward batch on a prefill engine: chunks of requests that are computed together, layer by layer. Its
 * programs are queued at once; from then on native code moves every layer as the counters allow.
 */
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
import type { PrefillRequest } from './prefill-request.js';

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
  /** After the batch: when the chunk was complete, or why it is not. */
  outcome?: { readonly finishedUs: number } | { readonly error: unknown };
}

/** One layer of a batch, for an engine that computes from JavaScript. */
export interface BatchLayer {
  readonly layer: number;
  /** Resolves when the layer's hit KV is in the staging and the staging may take its miss KV. */
  ready(): Promise<void>;
  /** The layer's miss KV is in the staging: it may be sent. Layers in order, each once. */
  done(): void;
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
  /**
   * Resolves when nothing of the batch is in flight any more, the device included: what became of each entry
   * is in its `outcome`.
   */
  readonly finished: Promise<void>;
  readonly #context: BatchContext;
  readonly #abort = new AbortController();
  readonly #holds: Promise<unknown>[] = [];
  #layerProgram: Program | undefined;

  /** The caller has made sure that the staging has room. */
  constructor(context: BatchContext, queue: readonly PrefillRequest[], packed: PackedBatch) {
    this.#context = context;
    this.totalS = packed.totalS;
    const { layout, engine } = context.traffic;
    const window = context.layerwise ? context.windowLayers : layout.layers;
    this.counters = new BatchCounters(engine, layout.layers, window, context.layerwise);
    this.entries = packed.entries.map(({ index, newTokens }) => this.#plan(queue[index]!, newTokens));
    for (const { parts, sends } of this.entries) {
      const pieces = (parts.prefillBlocks > 0 ? 1 : 0) + parts.decodeSegments.length;
      this.counters.piecesIn += context.freeHits ? 0 : pieces;
      this.counters.piecesOut += sends;
    }
    for (const entry of this.entries) {
      entry.program = engine.submit(this.#program(entry));
      this.#tellDecodeEngine(entry);
    }
    this.finished = this.#finish();
  }

  /** Aborted when the batch is given up: a device that works on it should stop. */
  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** The staging stays the batch's until `work` has settled, too: what a device still does with it. */
  holdUntil(work: Promise<unknown>): void {
    this.#holds.push(work);
  }

  #plan(request: PrefillRequest, newTokens: number): BatchPart {
    const { traffic, staging, freeHits } = this.#context;
    const { layout, engine } = traffic;
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
    const sendsHits = request.stage === 0 && parts.prefillBlocks > 0;
    return {
      request,
      cachedTokens,
      newTokens,
      last: newTokens === request.remainingTokens,
      staging: slots,
      parts,
      sent: engine.takeCounters(1),
      sends: sendsHits ? 2 : 1,
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
    const tail = blockTokens * Math.floor(request.tokens.length / blockTokens);
    const send = (firstBlock: number, tokenBegin: number, tokenEnd: number, windowEnd: number): Descriptor =>
      stagingToDecodeBuffer(counters, {
        peer,
        staging: staging.geometry,
        decodeBuffer: decode.geometry,
        stagingSlots: entry.staging.offset + firstBlock,
        decodeSlots: request.decodeSlots + firstBlock,
        firstBlock,
        blocks: Math.ceil(tokenEnd / blockTokens) - firstBlock,
        tokenBegin,
        tokenEnd,
        sent: entry.sent,
        windowEnd,
      });
    if (entry.sends === 2) descriptors.push(send(0, 0, parts.prefillBlocks * blockTokens, tail));
    const end = entry.cachedTokens + entry.newTokens;
    descriptors.push(send(Math.floor(entry.cachedTokens / blockTokens), entry.cachedTokens, end, 0));
    if (parts.decodeSegments.length > 0) {
      const bump = announceFreeStaging(counters, { peer, freeCounter: decode.freeCounter });
      if (bump !== undefined) descriptors.push(bump);
    }
    if (entry.last) {
      descriptors.push({
        op: 'bump',
        peer,
        waits: [{ counter: entry.sent, value: entry.sends * counters.layers }],
        signals: [{ counter: decode.mergedCounter, value: 1, remote: true }],
      });
    }
    return descriptors;
  }

  #tellDecodeEngine(entry: BatchPart): void {
    const { request, parts } = entry;
    const { traffic, control, staging } = this.#context;
    if (parts.decodeSegments.length === 0 && !entry.last) return;
    control.send(request.assignment.decodeEngine, traffic.name, {
      kind: 'stage',
      request: request.name,
      stage: request.stage,
      last: entry.last,
      hitBlocks: request.hitBlocks,
      geometry: staging.geometry,
      slots: traffic.engine.slots(entry.staging.offset, entry.staging.count),
      segments: parts.decodeSegments,
      arriveCounter: this.counters.arrive,
      arriveStep: this.counters.arriveStep,
      windowLayers: this.counters.windowLayers,
    });
  }

  /** What the device waits for before it computes layer l; then it raises counters.computed to l + 1. */
  get deviceWaits(): readonly Wait[] {
    const { counters } = this;
    return counters.layers > counters.windowLayers
      ? [counters.arrived(), counters.stagingFree()]
      : [counters.arrived()];
  }

  /** The layers, for computing from JavaScript rather than on a device that waits on counters itself. */
  layers(): BatchLayer[] {
    const { engine } = this.#context.traffic;
    const { counters } = this;
    const resolvers: (() => void)[] = [];
    const rejecters: ((error: unknown) => void)[] = [];
    const ready = Array.from({ length: counters.layers }, (_, layer) => {
      const promise = new Promise<void>((resolve, reject) => {
        resolvers[layer] = resolve;
        rejecters[layer] = reject;
      });
      promise.catch(() => undefined);
      return promise;
    });
    this.#layerProgram = engine.submit(
      [{ op: 'bump', steps: counters.layers, waits: this.deviceWaits, event: true }],
      (layer) => resolvers[layer]!(),
    );
    this.#layerProgram.done.catch((error: unknown) => rejecters.forEach((reject) => reject(error)));
    return ready.map((promise, layer) => ({
      layer,
      ready: () => promise,
      done: () => {
        engine
          .submit([{ op: 'bump', signals: [{ counter: counters.computed, value: 1 }] }])
          .done.catch(() => undefined);
      },
    }));
  }

  /** Gives the batch up: no more is begun; finished resolves once nothing is in flight. Idempotent. */
  abort(): void {
    if (this.#abort.signal.aborted) return;
    this.#abort.abort();
    const { engine, name } = this.#context.traffic;
    for (const { program, parts, request } of this.entries) {
      if (program !== undefined) engine.cancel(program);
      if (parts.decodeSegments.length === 0) continue;
      this.#context.control.send(request.assignment.decodeEngine, name, {
        kind: 'stage-abort',
        request: request.name,
        stage: request.stage,
      });
    }
    if (this.#layerProgram !== undefined) engine.cancel(this.#layerProgram);
  }

  async #finish(): Promise<void> {
    await Promise.all(this.entries.map((entry) => this.#settle(entry)));
    await Promise.allSettled(this.#holds);
  }

  /** A batch is computed as a whole: where one entry fails, the others end too, and may be tried again. */
  async #settle(entry: BatchPart): Promise<void> {
    const { request, parts, program } = entry;
    const stage = parts.decodeSegments.length > 0 ? request.stageDone(request.stage) : Promise.resolve();
    const works = [program!.done.then(({ finishedUs }) => finishedUs), stage.then(() => 0)];
    for (const work of works) work.catch(() => this.abort());
    const settled = await Promise.allSettled(works);
    const failures = settled.flatMap((result) =>
      result.status === 'rejected' ? [result.reason as unknown] : [],
    );
    const cause = failures.find((error) => !isCancelled(error)) ?? failures[0];
    entry.outcome = cause === undefined ? { finishedUs: (await works[0])! } : { error: cause };
  }

  /** After finished has settled. */
  release(): void {
    const { engine } = this.#context.traffic;
    for (const entry of this.entries) {
      entry.staging.release();
      engine.counters.giveBack(entry.sent, 1);
    }
    this.counters.release();
  }
}

/** Cancelled because the batch was given up, not by a fault of its own. */
export function isCancelled(error: unknown): boolean {
  return error instanceof DualPathError && error.code === 'CANCELLED';
}
