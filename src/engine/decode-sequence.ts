/** A sequence whose prompt KV is in DE HBM: the engine generates, each block it fills is persisted at once. */
import { DualPathError } from '../errors/index.js';
import { persistGenerated } from '../flow/index.js';
import type { DecodeContext, DecodeRequest } from './decode-request.js';
import { asError } from './request.js';

export interface SequenceResult {
  /** Prompt and generated tokens that have KV. */
  readonly tokens: number;
  readonly hitBlocks: number;
  /** Blocks of the sequence in the store now, as far as this request knows. */
  readonly storedBlocks: number;
  /** Why some block could not be stored: the sequence is right all the same, the next turn computes it anew. */
  readonly persistError: DualPathError | undefined;
}

export class DecodeSequence {
  readonly request: string;
  readonly promptTokens: number;
  readonly maxNewTokens: number;
  /** Leading blocks that came from the store. */
  readonly hitBlocks: number;
  /** Slot of block i at entry hbmOffset + i of the engine's slot table; covers prompt and maxNewTokens. */
  readonly hbmOffset: number;
  readonly hbmCount: number;
  /** Aborted, with the reason, when the request ends early: stop decoding and call finish() all the same. */
  readonly signal: AbortSignal;
  readonly #context: DecodeContext;
  readonly #decode: DecodeRequest;
  readonly #onEnd: () => Promise<void>;
  readonly #tokens: Uint32Array;
  #length: number;
  #storedBlocks: number;
  /** Persisting goes on one block after another: bounded buffer, and a chain without holes. */
  #persisting: Promise<void>;
  #persistError: DualPathError | undefined;
  #ended: Promise<SequenceResult> | undefined;

  /** @param onEnd gives the request's memory back */
  constructor(context: DecodeContext, decode: DecodeRequest, onEnd: () => Promise<void>) {
    this.#context = context;
    this.#decode = decode;
    this.#onEnd = onEnd;
    this.request = decode.name;
    this.promptTokens = decode.tokens.length;
    this.maxNewTokens = decode.maxNewTokens;
    this.hitBlocks = decode.hitBlocks;
    this.hbmOffset = decode.hbmSlots!.offset;
    this.hbmCount = decode.hbmSlots!.count;
    this.signal = decode.signal;
    this.#tokens = new Uint32Array(this.promptTokens + this.maxNewTokens);
    this.#tokens.set(decode.tokens);
    this.#length = this.promptTokens;
    this.#storedBlocks = context.traffic.layout.fullBlocksFor(this.promptTokens);
    this.#persisting = decode.persisted.promise.catch((error: unknown) => this.#failPersist(error));
  }

  /** Tokens with KV. */
  get length(): number {
    return this.#length;
  }

  /** The whole sequence so far; a view. */
  get tokens(): Uint32Array {
    return this.#tokens.subarray(0, this.#length);
  }

  /**
   * KV of a layer in HBM, in place: [hbmCount * block tokens, row bytes], a row a token, until finish(). Of a contiguous engine.
   * @throws INVALID_ARGUMENT, NO_EXTERNAL_BUFFERS
   */
  rows(layer: number): Uint8Array {
    return this.#context.hbm.rows(this.#decode.hbmSlots!, layer);
  }

  /**
   * What the prefill engine sampled from the prompt's last logits (`PrefillBatch.sampled`). Rejects when the request ends
   * early; never settles where the prefill engine hands nothing on.
   */
  sampled(): Promise<Uint32Array> {
    return this.#decode.sampled.promise;
  }

  /**
   * These tokens' KV has been written into HBM, every layer (the last generated token has none yet). A block
   * that is now full is persisted in the background. @throws INVALID_ARGUMENT beyond maxNewTokens, CLOSED after
   * finish()
   */
  append(tokens: Uint32Array): void {
    if (this.#ended !== undefined) {
      throw new DualPathError('CLOSED', `request '${this.request}': its sequence has been finished`);
    }
    if (this.#length + tokens.length > this.#tokens.length) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `request '${this.request}': ${this.#length + tokens.length} tokens, ${this.#tokens.length} reserved; ` +
          'submit it with a larger maxNewTokens',
        { tokens: this.#length + tokens.length, limit: this.#tokens.length },
      );
    }
    this.#tokens.set(tokens, this.#length);
    this.#length += tokens.length;
    const full = this.#context.traffic.layout.fullBlocksFor(this.#length);
    for (; this.#storedBlocks < full; this.#storedBlocks++) {
      const block = this.#storedBlocks;
      this.#persisting = this.#persisting
        .then(() => (this.#persistError === undefined ? this.#persist(block) : undefined))
        .catch((error: unknown) => this.#failPersist(error));
    }
  }

  async #persist(block: number): Promise<void> {
    const { traffic, hbm } = this.#context;
    const { engine, buffer, layout } = traffic;
    const chain = this.#decode.chain!;
    this.signal.throwIfAborted();
    await chain.extend(this.#tokens.subarray(0, (block + 1) * layout.blockTokens));
    const slots = await buffer.take(1, this.signal);
    let gathered: number | undefined;
    try {
      gathered = engine.takeCounters(1);
      await engine.submit(
        persistGenerated({
          hbm: hbm.geometry,
          buffer: buffer.geometry,
          hbmSlots: this.hbmOffset + block,
          bufferSlots: slots.offset,
          keys: chain.offset + block,
          firstBlock: block,
          blocks: 1,
          blockTokens: layout.blockTokens,
          layers: layout.layers,
          gathered,
        }),
      ).done;
    } finally {
      if (gathered !== undefined) engine.counters.giveBack(gathered, 1);
      slots.release();
    }
  }

  #failPersist(error: unknown): void {
    this.#persistError ??= asError(error);
  }

  /** The sequence is over: resolves when its full blocks are stored and its memory is free again. Idempotent. */
  finish(): Promise<SequenceResult> {
    this.#ended ??= this.#finish();
    return this.#ended;
  }

  async #finish(): Promise<SequenceResult> {
    await this.#persisting;
    await this.#onEnd();
    const persistError = this.#persistError;
    return {
      tokens: this.#length,
      hitBlocks: this.hitBlocks,
      storedBlocks: persistError === undefined ? this.#storedBlocks : this.hitBlocks,
      persistError,
    };
  }
}
