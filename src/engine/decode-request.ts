/** One request on its decode engine, from assignment until its prompt's KV is in DE HBM. */
import type { ControlLink, ControlMessage } from '../control/index.js';
import { DualPathError } from '../errors/index.js';
import { decodeBufferToStaging, mergedToHbm, persistMisses, readBlocks } from '../flow/index.js';
import type { BlockList, BlockSpace } from '../memory/index.js';
import type { Assignment, SchedulerClient } from '../scheduler/index.js';
import { KeyChain, type TrafficManager } from '../traffic/index.js';
import type { Descriptor, Program, ProgramResult } from '../transfer/index.js';
import { Deferred } from './deferred.js';
import type { PromptSource } from './options.js';
import { asError, blocksRead, EngineRequest } from './request.js';
import { Tasks } from './tasks.js';

type Stage = Extract<ControlMessage, { kind: 'stage' }>;

interface StageSend {
  /** Undefined until there is a connection to send over. */
  program?: Program;
  readonly stop: AbortController;
}

export interface DecodeContext {
  readonly traffic: TrafficManager;
  readonly hbm: BlockSpace;
  readonly control: ControlLink;
  readonly scheduler: SchedulerClient;
  readonly freeHits: boolean;
}

export class DecodeRequest extends EngineRequest {
  maxNewTokens = 0;
  /** The prompt's KV is in DE HBM. */
  readonly ready = new Deferred<void>();
  /** The prompt's new full blocks are stored. Rejects when they could not be; the request goes on. */
  readonly persisted = new Deferred<void>();
  /** What the prefill engine sampled from the prompt. Never settles where it samples nothing. */
  readonly sampled = new Deferred<Uint32Array>();
  /** Slots of the whole sequence, prompt and what may be generated. */
  hbmSlots: BlockList | undefined;
  chain: KeyChain | undefined;
  hitBlocks = 0;

  readonly #context: DecodeContext;
  /** Everything that uses the request's memory. */
  readonly #tasks = new Tasks();
  /** What the request's end cancels. */
  readonly #programs = new Set<Program>();
  /** Sends for forward batches: these run on, for the batch's other requests, until the PE has stopped. */
  readonly #stages = new Map<number, StageSend>();
  readonly #peerStopped = new Deferred<void>();
  #peerHasStopped = false;
  /** The prefill engine knows of this memory. */
  #announced = false;
  #merging = false;
  #buffer: BlockList | undefined;
  #counters: { readonly merged: number; readonly free: number } | undefined;

  constructor(assignment: Assignment, context: DecodeContext) {
    super(assignment);
    this.#context = context;
  }

  /** Reserves memory, tells the prefill engine where, and reads this side's part of the hits. */
  async prepare(prompts: PromptSource): Promise<void> {
    const { traffic, scheduler } = this.#context;
    const { prefillReadBlocks, decodeReadBlocks, admission } = this.assignment;
    await this.fetchPrompt(prompts, traffic.layout);
    await this.#reserve(prompts.maxNewTokens(this.name));
    this.throwIfEnding();
    this.#announce();
    let blocks = 0;
    if (decodeReadBlocks > 0) {
      const read = readBlocks({
        geometry: traffic.buffer.geometry,
        keys: this.chain!.offset + prefillReadBlocks,
        slots: this.#buffer!.offset + prefillReadBlocks,
        blocks: decodeReadBlocks,
      });
      blocks = await blocksRead(this.#run([read]), decodeReadBlocks);
    }
    scheduler.complete(this.name, 'decode-read', admission);
    this.throwIfEnding();
    this.#send({ kind: 'decode-read', request: this.key, blocks });
  }

  async #reserve(maxNewTokens: number): Promise<void> {
    const { layout, engine, buffer } = this.#context.traffic;
    const { promptBlocks, decodeHbmBlocks } = this.assignment;
    const promptTokens = this.tokens.length;
    const hbmBlocks = layout.blocksFor(promptTokens + maxNewTokens);
    if (hbmBlocks > decodeHbmBlocks) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `request '${this.name}': ${promptTokens} + ${maxNewTokens} tokens take ${hbmBlocks} blocks of HBM, ` +
          `${decodeHbmBlocks} are reserved; submit it to the scheduler with the same maxNewTokens`,
        { blocks: hbmBlocks, limit_blocks: decodeHbmBlocks },
      );
    }
    this.maxNewTokens = maxNewTokens;
    const generated = layout.fullBlocksFor(promptTokens + maxNewTokens) - layout.fullBlocksFor(promptTokens);
    this.chain = await KeyChain.hash(engine, layout, this.tokens, false, generated);
    this.#buffer = await buffer.take(promptBlocks, this.signal);
    this.hbmSlots = await this.#context.hbm.take(hbmBlocks, this.signal);
    const merged = engine.takeCounters(2);
    this.#counters = { merged, free: merged + 1 };
  }

  #announce(): void {
    const { engine, buffer } = this.#context.traffic;
    const { merged, free } = this.#counters!;
    this.#announced = true;
    this.#send({
      kind: 'decode-ready',
      request: this.key,
      geometry: buffer.geometry,
      slots: engine.slots(this.#buffer!.offset, this.#buffer!.count),
      mergedCounter: engine.counterHandle(merged),
      freeCounter: engine.counterHandle(free),
    });
  }

  /** Runs a program that the request's end cancels. */
  async #run(descriptors: readonly Descriptor[]): Promise<ProgramResult> {
    const program = this.#context.traffic.engine.submit(descriptors);
    this.#programs.add(program);
    this.#tasks.add(program.done);
    try {
      return await program.done;
    } finally {
      this.#programs.delete(program);
    }
  }

  on(message: ControlMessage): void {
    switch (message.kind) {
      case 'stage':
        this.#stage(message);
        break;
      case 'stage-abort':
        this.#cancelStage(message.stage);
        break;
      case 'sampled':
        this.sampled.resolve(message.tokens);
        break;
      case 'abort':
        this.end(new DualPathError(message.code, message.message));
        this.peerStopped();
        break;
      default:
        throw new DualPathError(
          'INTERNAL',
          `a decode engine was sent a message for a prefill engine: ${message.kind}`,
        );
    }
  }

  /** A forward batch holds the request: sends what it needs, layer by layer; after the last one, merges. */
  #stage(stage: Stage): void {
    if (this.error !== undefined) return; // the prefill engine is about to hear of it
    this.hitBlocks = stage.hitBlocks;
    // Once: a last stage may be tried again.
    if (stage.last && !this.#merging) {
      this.#merging = true;
      this.#tasks.add(this.#merge());
    }
    if (stage.segments.length > 0) this.#tasks.add(this.#serve(stage));
  }

  #cancelStage(stage: number): void {
    const send = this.#stages.get(stage);
    send?.stop.abort();
    if (send?.program !== undefined) this.#context.traffic.engine.cancel(send.program);
  }

  async #serve(stage: Stage): Promise<void> {
    let error: DualPathError | undefined;
    try {
      await this.#sendSegments(stage);
    } catch (cause) {
      error = asError(cause);
    }
    this.#send({
      kind: 'stage-done',
      request: this.key,
      stage: stage.stage,
      ...(error === undefined ? {} : { error: { code: error.code, message: error.message } }),
    });
  }

  async #sendSegments(stage: Stage): Promise<void> {
    const { traffic } = this.#context;
    const { prefillEngine } = this.assignment;
    const send: StageSend = { stop: new AbortController() };
    this.#stages.set(stage.stage, send);
    try {
      const peer = await traffic.peer(prefillEngine, send.stop.signal);
      try {
        await this.#sendTo(peer, stage, send);
      } finally {
        traffic.releasePeer(prefillEngine);
      }
    } finally {
      this.#stages.delete(stage.stage);
    }
  }

  async #sendTo(peer: number, stage: Stage, send: StageSend): Promise<void> {
    if (send.stop.signal.aborted)
      throw new DualPathError('CANCELLED', 'the prefill engine gave the stage up');
    const { engine, buffer, layout } = this.#context.traffic;
    const { free } = this.#counters!;
    const stagingSlots = engine.slotTable.take(stage.slots.length);
    try {
      engine.setSlots(stagingSlots, stage.slots);
      send.program = engine.submit(
        stage.segments.map((segment) =>
          decodeBufferToStaging(stage, segment, {
            peer,
            decodeBuffer: buffer.geometry,
            decodeSlots: this.#buffer!.offset + segment.firstBlock,
            stagingSlots: stagingSlots + segment.firstBlock,
            layers: layout.layers,
            freeCounter: free,
            computeFrom: stage.segments.at(-1)!.tokenEnd,
          }),
        ),
      );
      await send.program.done;
    } finally {
      engine.slotTable.giveBack(stagingSlots, stage.slots.length);
    }
  }

  /** The complete prompt: into HBM, and its new blocks into the store; then the buffer is free. */
  async #merge(): Promise<void> {
    const toHbm = this.#toHbm();
    const toStore = this.#toStore();
    toHbm.then(this.ready.resolve, (error: unknown) => this.end(asError(error)));
    toStore.then(this.persisted.resolve, this.persisted.reject);
    const [copied] = await Promise.allSettled([toHbm, toStore]);
    if (copied.status === 'rejected') return;
    this.peerStopped(); // the prompt is complete: the prefill engine is done with this memory
    this.#releaseBuffer();
    this.#context.scheduler.complete(this.name, 'decode-buffer', this.assignment.admission);
  }

  async #toHbm(): Promise<void> {
    const { traffic, hbm, freeHits } = this.#context;
    const { layout, buffer } = traffic;
    const tokenEnd = this.tokens.length;
    const firstBlock = freeHits ? this.hitBlocks : 0;
    await this.#run([
      mergedToHbm({
        buffer: buffer.geometry,
        hbm: hbm.geometry,
        bufferSlots: this.#buffer!.offset + firstBlock,
        hbmSlots: this.hbmSlots!.offset + firstBlock,
        blocks: layout.blocksFor(tokenEnd) - firstBlock,
        firstBlock,
        tokenBegin: firstBlock * layout.blockTokens,
        tokenEnd,
        windowEnd: layout.fullBlocksFor(tokenEnd) * layout.blockTokens,
        layers: layout.layers,
        merged: this.#counters!.merged,
      }),
    ]);
  }

  async #toStore(): Promise<void> {
    const { layout, buffer } = this.#context.traffic;
    const { hitBlocks } = this;
    await this.#run([
      persistMisses({
        buffer: buffer.geometry,
        slots: this.#buffer!.offset + hitBlocks,
        keys: this.chain!.offset + hitBlocks,
        firstBlock: hitBlocks,
        blocks: layout.fullBlocksFor(this.tokens.length) - hitBlocks,
        merged: this.#counters!.merged,
      }),
    ]);
  }

  #send(message: ControlMessage): void {
    this.#context.control.send(this.assignment.prefillEngine, this.#context.traffic.name, message);
  }

  protected override onEnd(error: DualPathError): void {
    for (const program of this.#programs) this.#context.traffic.engine.cancel(program);
    this.ready.reject(error);
    this.persisted.reject(error);
    this.sampled.reject(error);
  }

  /** Nothing of the prefill engine's is in flight here: it has said so, or can no longer reach this engine. */
  peerStopped(): void {
    this.#peerHasStopped = true;
    this.#peerStopped.resolve();
    for (const stage of this.#stages.keys()) this.#cancelStage(stage);
  }

  /** The prefill engine is gone for good: that ends the request unless all its KV is here already. */
  peerLost(error: DualPathError): void {
    const { engine } = this.#context.traffic;
    const merged = this.#counters !== undefined && engine.counter(this.#counters.merged) > 0;
    if (!merged) this.end(error);
    this.peerStopped();
  }

  /** Resolves when nothing of the request is in flight on this side. */
  settled(): Promise<void> {
    return this.#tasks.settled();
  }

  /**
   * After end(): waits until nothing of the request is in flight on this side, says so to the prefill engine,
   * and gives memory back once that has said the same.
   */
  async windUp({ code, message }: DualPathError): Promise<void> {
    await this.settled();
    if (!this.#peerHasStopped) {
      this.#send({ kind: 'abort', request: this.key, code, message });
      if (this.#announced) await this.#peerStopped.promise;
    }
    this.release();
  }

  /** Only when nothing of the request is in flight, here or at the prefill engine. Idempotent. */
  release(): void {
    this.#releaseBuffer();
    this.hbmSlots?.release();
    this.chain?.release();
    if (this.#counters !== undefined) {
      this.#context.traffic.engine.counters.giveBack(this.#counters.merged, 2);
      this.#counters = undefined;
    }
  }

  #releaseBuffer(): void {
    this.#buffer?.release();
    this.#buffer = undefined;
  }
}
