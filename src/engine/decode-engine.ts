/**
 * A decode engine: takes requests from the scheduler, reads its side's part of their hits, serves prefill
 * engines from its buffer, merges, persists, and hands out sequences to decode.
 */
import type { NativeGeometry } from '../binding/index.js';
import type { ControlMessage } from '../control/index.js';
import { requestKey } from '../control/index.js';
import { DualPathError } from '../errors/index.js';
import { BlockSpace, contiguousGeometry, sequenceGeometry } from '../memory/index.js';
import type { Assignment } from '../scheduler/index.js';
import type { TrafficManager } from '../traffic/index.js';
import { DecodeRequest, type DecodeContext } from './decode-request.js';
import { DecodeSequence } from './decode-sequence.js';
import { EarlyEvents } from './early-events.js';
import { FetchLoop } from './fetch-loop.js';
import { Mailbox } from './mailbox.js';
import type { DecodeEngineOptions } from './options.js';
import { asError } from './request.js';
import { Tasks } from './tasks.js';

export class DecodeEngine {
  readonly name: string;
  readonly traffic: TrafficManager;
  /** DE HBM: whole sequences. */
  readonly hbm: BlockSpace;
  /** Where a slot's bytes are in DE HBM, and the arena that they are in. */
  readonly hbmGeometry: NativeGeometry;
  readonly #options: DecodeEngineOptions;
  readonly #context: DecodeContext;
  readonly #requests = new Map<string, DecodeRequest>();
  readonly #early = new EarlyEvents<DecodeRequest>();
  readonly #sequences = new Mailbox<DecodeSequence>();
  /** Requests until their sequence is handed out or they have ended. */
  readonly #accepting = new Tasks();
  readonly #unlisten: () => void;
  readonly #loop: FetchLoop;
  #closing: Promise<void> | undefined;

  constructor(options: DecodeEngineOptions) {
    const { traffic } = options;
    this.name = traffic.name;
    this.traffic = traffic;
    this.#options = options;
    const { layout } = traffic;
    const { hbmBlocks, contiguous = false } = options;
    this.hbmGeometry = contiguous
      ? contiguousGeometry(layout, hbmBlocks, layout.layers, `${this.name}/hbm`)
      : sequenceGeometry(layout, hbmBlocks, `${this.name}/hbm`);
    this.hbm = new BlockSpace(traffic.engine, this.hbmGeometry, contiguous);
    this.#context = {
      traffic,
      hbm: this.hbm,
      control: options.control,
      scheduler: options.scheduler,
      freeHits: options.freeHits ?? false,
    };
    this.#unlisten = options.control.listen(this.name, (from, message) => this.#onMessage(from, message));
    this.#loop = new FetchLoop(options, {
      load: () => this.#load(),
      accept: (assignment) => this.#accepting.add(this.#accept(assignment)),
      failed: (error) => this.#sequences.close(asError(error)),
    });
  }

  /**
   * Sequences as their prompt KV arrives in HBM; ends when the engine is closed. One consumer. Whoever takes a
   * sequence calls its finish(), also when its signal is aborted.
   */
  async *sequences(): AsyncGenerator<DecodeSequence, void, void> {
    for await (const sequence of this.#sequences) {
      if (sequence.signal.aborted) void sequence.finish();
      else yield sequence;
    }
  }

  #load(): { unfinishedRequests: number; unfinishedTokens: number } {
    let unfinishedTokens = 0;
    for (const { tokens } of this.#requests.values()) unfinishedTokens += tokens.length;
    return { unfinishedRequests: this.#requests.size, unfinishedTokens };
  }

  async #accept(assignment: Assignment): Promise<void> {
    if (assignment.decodeEngine !== this.name) return;
    const request = new DecodeRequest(assignment, this.#context);
    this.#requests.set(request.key, request);
    this.#early.deliver(request.key, request);
    try {
      if (this.#closing !== undefined) throw closedError(this.name);
      request.limit(this.#options.prompts, (error) => request.end(error));
      await request.prepare(this.#options.prompts);
      await request.ready.promise;
      this.#sequences.push(new DecodeSequence(this.#context, request, () => this.#finish(request)));
    } catch (error) {
      request.end(asError(error));
      await request.windUp(request.error!);
      request.unlimit();
      this.#requests.delete(request.key);
      this.#options.scheduler.fail(request.name, request.error!, assignment.admission);
    }
  }

  #onMessage(from: string, message: ControlMessage): void {
    const request = this.#requests.get(message.request);
    if (request !== undefined) {
      request.on(message);
    } else if (message.kind === 'abort') {
      this.#early.keep(message.request, (late) => late.on(message));
    } else if (message.kind === 'stage') {
      // The request has ended here, and the prefill engine has not heard of it yet.
      this.#options.control.send(from, this.name, {
        kind: 'abort',
        request: message.request,
        code: 'CANCELLED',
        message: `request '${message.request}' has ended at decode engine '${this.name}'`,
      });
    }
  }

  async #finish(request: DecodeRequest): Promise<void> {
    await request.settled();
    request.unlimit();
    request.release();
    this.#requests.delete(request.key);
    const { scheduler } = this.#options;
    const { admission } = request.assignment;
    if (request.error === undefined) scheduler.complete(request.name, 'request', admission);
    else scheduler.fail(request.name, request.error, admission);
  }

  /**
   * Ends a request here, on behalf of its user or of the scheduler; one that has ended is none of its business.
   * @param admission of its assignment: then one that this engine has not been given yet is ended when it comes
   */
  cancel(name: string, error: DualPathError, admission?: number): void {
    let found = false;
    for (const request of this.#requests.values()) {
      if (request.name !== name || (admission !== undefined && request.assignment.admission !== admission))
        continue;
      found = true;
      request.end(error);
    }
    if (found || admission === undefined) return;
    this.#early.keep(requestKey({ request: name, admission }), (late) => late.end(error));
  }

  /** A prefill engine is gone for good: its requests end, but for those whose prompt KV is here already. */
  peerLost(prefillEngine: string): void {
    this.traffic.forgetPeer(prefillEngine);
    const error = new DualPathError('PEER_LOST', `prefill engine '${prefillEngine}' was lost`);
    for (const request of this.#requests.values()) {
      if (request.assignment.prefillEngine === prefillEngine) request.peerLost(error);
    }
  }

  /**
   * Every request ends (CLOSED), peers no longer reach this engine's memory, then memory goes. Sequences that
   * are decoding hear of it by their signal. Idempotent.
   */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    await this.#loop.stop();
    const error = closedError(this.name);
    for (const request of this.#requests.values()) request.end(error);
    this.#sequences.close();
    await this.traffic.close();
    for (const request of this.#requests.values()) request.peerStopped();
    await this.#accepting.settled();
    // Whoever decodes may be long in finishing; the scheduler need not wait for that.
    for (const { name, assignment } of this.#requests.values()) {
      this.#options.scheduler.fail(name, error, assignment.admission);
    }
    this.#unlisten();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

function closedError(name: string): DualPathError {
  return new DualPathError('CLOSED', `decode engine '${name}' has been closed`, { engine: name });
}
