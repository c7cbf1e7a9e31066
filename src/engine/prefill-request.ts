/** One request on its prefill engine, from assignment until its prompt is complete at the decode engine. */
import type { ControlMessage } from '../control/index.js';
import { DualPathError, isDualPathError } from '../errors/index.js';
import { readBlocks } from '../flow/index.js';
import type { BlockList } from '../memory/index.js';
import type { Assignment, SchedulerClient } from '../scheduler/index.js';
import { KeyChain, type TrafficManager } from '../traffic/index.js';
import { ProgramError, type Program } from '../transfer/index.js';
import { Deferred } from './deferred.js';

type DecodeReady = Extract<ControlMessage, { kind: 'decode-ready' }>;

export class PrefillRequest {
  readonly assignment: Assignment;
  readonly tokens: Uint32Array;
  readonly #traffic: TrafficManager;
  readonly #scheduler: SchedulerClient;
  readonly #decodeReady = new Deferred<DecodeReady>();
  readonly #decodeRead = new Deferred<number>();
  readonly #stagesDone = new Map<number, Deferred<void>>();
  #chain: KeyChain | undefined;
  #buffer: BlockList | undefined;
  #reading: Program | undefined;
  /** Why the request ends early. */
  error: DualPathError | undefined;

  // Known once prepare() has resolved.
  hitBlocks = 0;
  /** Blocks found that could not be read. */
  lostBlocks = 0;
  decode!: DecodeReady;
  /** The DE buffer's slots, in this engine's slot table. */
  decodeSlots = 0;
  decodeSlotCount = 0;
  peer = 0;

  // Moved on by the batches.
  cachedTokens = 0;
  stage = 0;

  constructor(
    assignment: Assignment,
    tokens: Uint32Array,
    traffic: TrafficManager,
    scheduler: SchedulerClient,
  ) {
    this.assignment = assignment;
    this.tokens = tokens;
    this.#traffic = traffic;
    this.#scheduler = scheduler;
  }

  get name(): string {
    return this.assignment.request;
  }

  get remainingTokens(): number {
    return this.tokens.length - this.cachedTokens;
  }

  get bufferSlots(): number {
    return this.#buffer?.offset ?? 0;
  }

  /**
   * Reads this side's part of the hits and waits for the decode engine's part. A block that cannot be read
   * ends the hits there: the rest is computed, nothing wrong is ever served.
   */
  async prepare(freeHits: boolean): Promise<void> {
    const { assignment } = this;
    const blocks = assignment.prefillReadBlocks;
    this.#chain = await KeyChain.hash(this.#traffic.engine, this.#traffic.layout, this.tokens, freeHits);
    let arrived = 0;
    if (blocks > 0) {
      const { buffer } = this.#traffic;
      this.#buffer = await buffer.take(blocks);
      this.#throwIfEnding();
      arrived = await this.#read(
        readBlocks({
          geometry: buffer.geometry,
          keys: this.#chain.offset,
          slots: this.#buffer.offset,
          blocks,
        }),
        blocks,
      );
    }
    this.#scheduler.complete(this.name, 'prefill-read', assignment.epoch);
    this.decode = await this.#decodeReady.promise;
    const decodeBlocks = await this.#decodeRead.promise;
    this.#throwIfEnding();
    this.hitBlocks = freeHits ? this.#chain.hitBlocks : arrived < blocks ? arrived : blocks + decodeBlocks;
    this.lostBlocks = freeHits ? 0 : blocks + assignment.decodeReadBlocks - this.hitBlocks;
    this.cachedTokens = this.hitBlocks * this.#traffic.layout.blockTokens;
    this.peer = this.#traffic.peer(assignment.decodeEngine);
    const { slots } = this.decode;
    this.decodeSlots = this.#traffic.engine.slotTable.take(slots.length);
    this.decodeSlotCount = slots.length;
    this.#traffic.engine.setSlots(this.decodeSlots, slots);
  }

  async #read(descriptor: ReturnType<typeof readBlocks>, blocks: number): Promise<number> {
    this.#reading = this.#traffic.engine.submit([descriptor]);
    try {
      await this.#reading.done;
      return blocks;
    } catch (error) {
      const lost = isDualPathError(error, 'BAD_BLOCK') || isDualPathError(error, 'STORAGE_IO');
      if (lost && error instanceof ProgramError && error.failedBlock !== undefined) return error.failedBlock;
      throw error;
    } finally {
      this.#reading = undefined;
    }
  }

  #throwIfEnding(): void {
    if (this.error !== undefined) throw this.error;
  }

  /** Messages of the decode engine about this request. */
  on(message: ControlMessage): void {
    switch (message.kind) {
      case 'decode-ready':
        this.#decodeReady.resolve(message);
        break;
      case 'decode-read':
        this.#decodeRead.resolve(message.blocks);
        break;
      case 'stage-done': {
        const { error } = message;
        const slot = this.#stageSlot(message.stage);
        if (error === undefined) slot.resolve();
        else slot.reject(new DualPathError(error.code, error.message));
        break;
      }
      case 'abort':
        this.end(new DualPathError(message.code, message.message));
        // The decode engine has stopped: nothing of its is in flight here.
        for (const stage of this.#stagesDone.values()) stage.reject(this.error);
        break;
      case 'stage':
      case 'stage-abort':
        throw new DualPathError(
          'INTERNAL',
          `a prefill engine was sent a message for a decode engine: ${message.kind}`,
        );
    }
  }

  /** Resolves when nothing of the decode engine's is in flight into the stage's staging. */
  stageDone(stage: number): Promise<void> {
    return this.#stageSlot(stage).promise;
  }

  #stageSlot(stage: number): Deferred<void> {
    let slot = this.#stagesDone.get(stage);
    if (slot === undefined) {
      slot = new Deferred<void>();
      this.#stagesDone.set(stage, slot);
    }
    return slot;
  }

  /** The request is to end with `error`: what it waits for and reads is given up; a batch that has it runs on. */
  end(error: DualPathError): void {
    if (this.error !== undefined) return;
    this.error = error;
    this.#decodeReady.reject(error);
    this.#decodeRead.reject(error);
    if (this.#reading !== undefined) this.#traffic.engine.cancel(this.#reading);
  }

  /** Gives everything back; only when nothing of the request is in flight. Idempotent. */
  release(): void {
    this.#buffer?.release();
    this.#buffer = undefined;
    this.#chain?.release();
    this.#chain = undefined;
    this.#traffic.engine.slotTable.giveBack(this.decodeSlots, this.decodeSlotCount);
    this.decodeSlotCount = 0;
  }
}
