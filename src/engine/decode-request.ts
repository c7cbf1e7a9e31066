/** One request on its decode engine, from assignment until its prompt's KV is in DE HBM. */
import type { ControlLink, ControlMessage } from '../control/index.js';
import { DualPathError, isDualPathError } from '../errors/index.js';
import { decodeBufferToStaging, mergedToHbm, persistMisses, readBlocks } from '../flow/index.js';
import type { BlockList, BlockSpace } from '../memory/index.js';
import type { Assignment, SchedulerClient } from '../scheduler/index.js';
import { KeyChain, type TrafficManager } from '../traffic/index.js';
import { ProgramError, type Descriptor, type Program } from '../transfer/index.js';
import { asError } from './fetch-loop.js';
import { Deferred } from './deferred.js';

type Stage = Extract<ControlMessage, { kind: 'stage' }>;

export interface DecodeContext {
  readonly traffic: TrafficManager;
  readonly hbm: BlockSpace;
  readonly control: ControlLink;
  readonly scheduler: SchedulerClient;
  readonly freeHits: boolean;
}

export class DecodeRequest {
  readonly assignment: Assignment;
  readonly prompt: Uint32Array;
  readonly maxNewTokens: number;
  /** The prompt's KV is in DE HBM. */
  readonly ready = new Deferred<void>();
  /** The prompt's new full blocks are stored. Rejects when they could not be; the request goes on. */
  readonly persisted = new Deferred<void>();
  /** Slots of the whole sequence, prompt and what may be generated. */
  hbmSlots!: BlockList;
  chain!: KeyChain;
  hitBlocks = 0;
  error: DualPathError | undefined;

  readonly #context: DecodeContext;
  readonly #programs = new Set<Program>();
  readonly #stages = new Map<number, Program>();
  readonly #peerStopped = new Deferred<void>();
  #buffer: BlockList | undefined;
  #counters: { merged: number; free: number } | undefined;
  /** Where the free counter stood before the current stage. */
  #freeBase = 0;
  #prepared = false;

  constructor(assignment: Assignment, prompt: Uint32Array, maxNewTokens: number, context: DecodeContext) {
    this.assignment = assignment;
    this.prompt = prompt;
    this.maxNewTokens = maxNewTokens;
    this.#context = context;
  }

  get name(): string {
    return this.assignment.request;
  }

  /** Reserves memory, tells the prefill engine where, and reads this side's part of the hits. */
  async prepare(): Promise<void> {
    const { traffic, hbm, scheduler } = this.#context;
    const { layout, engine, buffer } = traffic;
    const { promptBlocks, prefillReadBlocks, decodeReadBlocks, epoch } = this.assignment;
    const generated =
      layout.fullBlocksFor(this.prompt.length + this.maxNewTokens) - layout.fullBlocksFor(this.prompt.length);
    this.chain = await KeyChain.hash(engine, layout, this.prompt, false, generated);
    this.#buffer = await buffer.take(promptBlocks);
    this.hbmSlots = await hbm.take(layout.blocksFor(this.prompt.length + this.maxNewTokens));
    const merged = engine.takeCounters(2);
    this.#counters = { merged, free: merged + 1 };
    this.#prepared = true;
    if (this.error !== undefined) throw this.error;
    this.#send({
      kind: 'decode-ready',
      request: this.name,
      geometry: buffer.geometry,
      slots: engine.slots(this.#buffer.offset, promptBlocks),
      mergedCounter: merged,
      freeCounter: merged + 1,
    });
    let blocks = 0;
    if (decodeReadBlocks > 0) {
      blocks = await this.#read(prefillReadBlocks, decodeReadBlocks);
    }
    scheduler.complete(this.name, 'decode-read', epoch);
    if (this.error !== undefined) throw this.error;
    this.#send({ kind: 'decode-read', request: this.name, blocks });
  }

  async #read(firstBlock: number, blocks: number): Promise<number> {
    const { buffer } = this.#context.traffic;
    try {
      await this.#run([
        readBlocks({
          geometry: buffer.geometry,
          keys: this.chain.offset + firstBlock,
          slots: this.#buffer!.offset + firstBlock,
          blocks,
        }),
      ]);
      return blocks;
    } catch (error) {
      const lost = isDualPathError(error, 'BAD_BLOCK') || isDualPathError(error, 'STORAGE_IO');
      if (lost && error instanceof ProgramError && error.failedBlock !== undefined) return error.failedBlock;
      throw error;
    }
  }

  /** Submits a program that end() can cancel. */
  #submit(descriptors: readonly Descriptor[]): Program {
    const program = this.#context.traffic.engine.submit(descriptors);
    this.#programs.add(program);
    const forget = (): boolean => this.#programs.delete(program);
    program.done.then(forget, forget);
    return program;
  }

  async #run(descriptors: readonly Descriptor[]): Promise<void> {
    await this.#submit(descriptors).done;
  }

  on(message: ControlMessage): void {
    switch (message.kind) {
      case 'stage':
        void this.#stage(message);
        break;
      case 'stage-abort': {
        const program = this.#stages.get(message.stage);
        if (program !== undefined) this.#context.traffic.engine.cancel(program);
        break;
      }
      case 'abort':
        this.#peerStopped.resolve();
        this.end(new DualPathError(message.code, message.message));
        break;
      default:
        throw new DualPathError(
          'INTERNAL',
          `a decode engine was sent a message for a prefill engine: ${message.kind}`,
        );
    }
  }

  /** A forward batch holds the request: sends what it needs, layer by layer; after the last one, merges. */
  async #stage(stage: Stage): Promise<void> {
    if (this.error !== undefined) return;
    this.hitBlocks = stage.hitBlocks;
    if (stage.last) void this.#merge();
    if (stage.segments.length === 0) return;
    const { layers } = this.#context.traffic.layout;
    const window = Math.min(stage.windowLayers, layers);
    let error: DualPathError | undefined;
    try {
      await this.#sendSegments(stage);
      this.#freeBase += layers - window;
    } catch (cause) {
      error = asError(cause);
      // The prefill engine's bumps of the failed stage may be incomplete; it has none in flight when it tries again.
      this.#freeBase = Number.NaN;
    }
    this.#stages.delete(stage.stage);
    this.#send({
      kind: 'stage-done',
      request: this.name,
      stage: stage.stage,
      ...(error === undefined ? {} : { error: { code: error.code, message: error.message } }),
    });
  }

  async #sendSegments(stage: Stage): Promise<void> {
    const { engine, buffer, layout } = this.#context.traffic;
    const peer = this.#context.traffic.peer(this.assignment.prefillEngine);
    const { free } = this.#counters!;
    if (Number.isNaN(this.#freeBase)) this.#freeBase = engine.counter(free);
    const stagingSlots = engine.slotTable.take(stage.slots.length);
    try {
      engine.setSlots(stagingSlots, stage.slots);
      const last = stage.segments.at(-1)!;
      const program = this.#submit(
        stage.segments.map((segment) =>
          decodeBufferToStaging(stage, segment, {
            peer,
            decodeBuffer: buffer.geometry,
            decodeSlots: this.#buffer!.offset + segment.firstBlock,
            stagingSlots: stagingSlots + segment.firstBlock,
            layers: layout.layers,
            freeCounter: free,
            freeBase: this.#freeBase,
            computeFrom: last.tokenEnd,
          }),
        ),
      );
      this.#stages.set(stage.stage, program);
      await program.done;
    } finally {
      engine.slotTable.giveBack(stagingSlots, stage.slots.length);
    }
  }

  /** The complete prompt: into HBM, and its new blocks into the store; then the buffer is free. */
  async #merge(): Promise<void> {
    const { traffic, hbm, freeHits } = this.#context;
    const { layout, buffer } = traffic;
    const { blockTokens } = layout;
    const { merged } = this.#counters!;
    const tokenEnd = this.prompt.length;
    const firstBlock = freeHits ? this.hitBlocks : 0;
    const slots = this.#buffer!.offset;
    const toHbm = this.#run([
      mergedToHbm({
        buffer: buffer.geometry,
        hbm: hbm.geometry,
        bufferSlots: slots + firstBlock,
        hbmSlots: this.hbmSlots.offset + firstBlock,
        blocks: layout.blocksFor(tokenEnd) - firstBlock,
        firstBlock,
        tokenBegin: firstBlock * blockTokens,
        tokenEnd,
        windowEnd: layout.fullBlocksFor(tokenEnd) * blockTokens,
        layers: layout.layers,
        merged,
      }),
    ]);
    const toStore = this.#run([
      persistMisses({
        buffer: buffer.geometry,
        slots: slots + this.hitBlocks,
        keys: this.chain.offset + this.hitBlocks,
        blocks: layout.fullBlocksFor(tokenEnd) - this.hitBlocks,
        merged,
      }),
    ]);
    toHbm.then(this.ready.resolve, (error: unknown) => {
      this.ready.reject(error);
      this.end(asError(error));
    });
    toStore.then(this.persisted.resolve, this.persisted.reject);
    const [copied] = await Promise.allSettled([toHbm, toStore]);
    if (copied.status === 'rejected') return;
    this.#peerStopped.resolve(); // the prompt is complete: the prefill engine is done with this memory
    this.#releaseBuffer();
    this.#context.scheduler.complete(this.name, 'decode-buffer', this.assignment.epoch);
  }

  #send(message: ControlMessage): void {
    this.#context.control.send(this.assignment.prefillEngine, this.#context.traffic.name, message);
  }

  /** The request is to end with `error`: its programs are cancelled, what waits for it hears of it. */
  end(error: DualPathError): void {
    if (this.error !== undefined) return;
    this.error = error;
    for (const program of this.#programs) this.#context.traffic.engine.cancel(program);
    this.ready.reject(error);
    this.persisted.reject(error);
  }

  /**
   * After end(): waits until nothing of the request is in flight on this side, says so to the prefill engine,
   * and gives memory back once that has said the same.
   */
  async windUp(): Promise<void> {
    await Promise.allSettled([...this.#programs].map(({ done }) => done));
    const { code, message } = this.error!;
    this.#send({ kind: 'abort', request: this.name, code, message });
    if (this.#prepared) await this.#peerStopped.promise;
    this.release();
  }

  /** Only when nothing of the request is in flight, here or at the prefill engine. Idempotent. */
  release(): void {
    this.#releaseBuffer();
    (this.hbmSlots as BlockList | undefined)?.release();
    (this.chain as KeyChain | undefined)?.release();
    if (this.#counters !== undefined)
      this.#context.traffic.engine.counters.giveBack(this.#counters.merged, 2);
    this.#counters = undefined;
  }

  #releaseBuffer(): void {
    this.#buffer?.release();
    this.#buffer = undefined;
  }
}
