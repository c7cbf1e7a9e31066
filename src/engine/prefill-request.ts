/** One request on its prefill engine, from assignment until its prompt is complete at the decode engine. */
import type { ControlMessage } from '../control/index.js';
import { DualPathError } from '../errors/index.js';
import { readBlocks } from '../flow/index.js';
import type { BlockList } from '../memory/index.js';
import type { Assignment, SchedulerClient } from '../scheduler/index.js';
import { KeyChain, type TrafficManager } from '../traffic/index.js';
import type { Program } from '../transfer/index.js';
import { Deferred } from './deferred.js';
import type { PromptSource } from './options.js';
import { blocksRead, EngineRequest } from './request.js';

type DecodeReady = Extract<ControlMessage, { kind: 'decode-ready' }>;

export class PrefillRequest extends EngineRequest {
  readonly #traffic: TrafficManager;
  readonly #scheduler: SchedulerClient;
  readonly #decodeReady = new Deferred<DecodeReady>();
  readonly #decodeRead = new Deferred<number>();
  /** Stages that the decode engine may be sending for. */
  readonly #stages = new Map<number, Deferred<void>>();
  #chain: KeyChain | undefined;
  #buffer: BlockList | undefined;
  #reading: Program | undefined;
  #holdsPeer = false;

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
  /** Batches so far, given up or not: each names its messages by it. */
  stage = 0;
  /** The hits of this side have reached the DE buffer. */
  hitsSent = false;
  /** Batches that were given up. */
  tries = 0;

  constructor(assignment: Assignment, traffic: TrafficManager, scheduler: SchedulerClient) {
    super(assignment);
    this.#traffic = traffic;
    this.#scheduler = scheduler;
  }

  get remainingTokens(): number {
    return this.tokens.length - this.cachedTokens;
  }

  get bufferSlots(): number {
    return this.#buffer?.offset ?? 0;
  }

  /** Reads this side's part of the hits and waits for the decode engine's part. */
  async prepare(prompts: PromptSource, freeHits: boolean): Promise<void> {
    const { assignment } = this;
    const { engine, layout } = this.#traffic;
    await this.fetchPrompt(prompts, layout);
    this.#chain = await KeyChain.hash(engine, layout, this.tokens, freeHits);
    const arrived = await this.#read(this.#chain, assignment.prefillReadBlocks);
    this.#scheduler.complete(this.name, 'prefill-read', assignment.admission);
    this.decode = await this.#decodeReady.promise;
    const decodeBlocks = await this.#decodeRead.promise;
    this.throwIfEnding();
    const asked = assignment.prefillReadBlocks + assignment.decodeReadBlocks;
    // Blocks count from the first: where the prefill side's part ends early, the decode side's is of no use.
    const stored = arrived < assignment.prefillReadBlocks ? arrived : arrived + decodeBlocks;
    this.lostBlocks = asked - stored;
    // One token is always computed: without it there is no next token.
    const most = layout.fullBlocksFor(this.tokens.length - 1);
    this.hitBlocks = freeHits ? this.#chain.hitBlocks : Math.min(stored, most);
    this.cachedTokens = this.hitBlocks * layout.blockTokens;
    this.peer = await this.#traffic.peer(assignment.decodeEngine, this.signal);
    this.#holdsPeer = true;
    this.throwIfEnding();
    const { slots } = this.decode;
    this.decodeSlots = engine.slotTable.take(slots.length);
    this.decodeSlotCount = slots.length;
    engine.setSlots(this.decodeSlots, slots);
  }

  async #read(chain: KeyChain, blocks: number): Promise<number> {
    if (blocks === 0) return 0;
    const { engine, buffer } = this.#traffic;
    this.#buffer = await buffer.take(blocks, this.signal);
    this.throwIfEnding();
    const slots = this.#buffer.offset;
    this.#reading = engine.submit([
      readBlocks({ geometry: buffer.geometry, keys: chain.offset, slots, blocks }),
    ]);
    return await blocksRead(this.#reading.done, blocks);
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
        const stage = this.#stages.get(message.stage);
        if (error === undefined) stage?.resolve();
        else stage?.reject(new DualPathError(error.code, error.message));
        break;
      }
      case 'abort': {
        const error = new DualPathError(message.code, message.message);
        this.end(error);
        this.peerStopped(error);
        break;
      }
      case 'stage':
      case 'stage-abort':
      case 'sampled':
        throw new DualPathError(
          'INTERNAL',
          `a prefill engine was sent a message for a decode engine: ${message.kind}`,
        );
    }
  }

  /** Resolves when nothing of the decode engine's is in flight into the stage's staging. */
  stageDone(stage: number): Promise<void> {
    const done = new Deferred<void>();
    this.#stages.set(stage, done);
    const forget = (): boolean => this.#stages.delete(stage);
    done.promise.then(forget, forget);
    return done.promise;
  }

  /** Nothing of the decode engine's is in flight here: it has said so, or can no longer reach this engine. */
  peerStopped(error: DualPathError): void {
    for (const stage of this.#stages.values()) stage.reject(error);
  }

  /** What it waits for and reads is given up; a batch that has it runs on. */
  protected override onEnd(error: DualPathError): void {
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
    if (this.#holdsPeer) this.#traffic.releasePeer(this.assignment.decodeEngine);
    this.#holdsPeer = false;
  }
}
