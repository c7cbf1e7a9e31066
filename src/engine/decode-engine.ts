/**
 * A decode engine: takes requests from the scheduler, reads its side's part of their hits, serves prefill
 * engines from its buffer, merges, persists, and hands out sequences to decode.
 */
import type { ControlMessage } from '../control/index.js';
import { DualPathError } from '../errors/index.js';
import { BlockSpace, sequenceGeometry } from '../memory/index.js';
import type { Assignment } from '../scheduler/index.js';
import type { TrafficManager } from '../traffic/index.js';
import { DecodeRequest, type DecodeContext } from './decode-request.js';
import { DecodeSequence } from './decode-sequence.js';
import { asError, FetchLoop } from './fetch-loop.js';
import { Mailbox } from './mailbox.js';
import type { DecodeEngineOptions } from './options.js';

export class DecodeEngine {
  readonly name: string;
  readonly traffic: TrafficManager;
  /** DE HBM: whole sequences. */
  readonly hbm: BlockSpace;
  readonly #options: DecodeEngineOptions;
  readonly #context: DecodeContext;
  readonly #requests = new Map<string, DecodeRequest>();
  readonly #sequences = new Mailbox<DecodeSequence>();
  readonly #unlisten: () => void;
  readonly #loop: FetchLoop;
  #closing: Promise<void> | undefined;

  constructor(options: DecodeEngineOptions) {
    const { traffic } = options;
    this.name = traffic.name;
    this.traffic = traffic;
    this.#options = options;
    this.hbm = new BlockSpace(
      traffic.engine,
      sequenceGeometry(traffic.layout, options.hbmBlocks, `${this.name}/hbm`),
    );
    this.#context = {
      traffic,
      hbm: this.hbm,
      control: options.control,
      scheduler: options.scheduler,
      freeHits: options.freeHits ?? false,
    };
    this.#unlisten = options.control.listen(this.name, (from, message) => this.#onMessage(from, message));
    this.#loop = new FetchLoop(
      options,
      () => this.#load(),
      (assignment) => void this.#accept(assignment),
    );
  }

  /** Sequences as their prompt KV arrives in HBM. One consumer. */
  sequences(): AsyncIterable<DecodeSequence> {
    return this.#sequences;
  }

  #load(): { unfinishedRequests: number; unfinishedTokens: number } {
    let unfinishedTokens = 0;
    for (const { prompt } of this.#requests.values()) unfinishedTokens += prompt.length;
    return { unfinishedRequests: this.#requests.size, unfinishedTokens };
  }

  async #accept(assignment: Assignment): Promise<void> {
    if (assignment.decodeEngine !== this.name) return;
    const { prompts } = this.#options;
    const prompt = await prompts.prompt(assignment.request);
    const maxNewTokens = prompts.maxNewTokens(assignment.request);
    const request = new DecodeRequest(assignment, prompt, maxNewTokens, this.#context);
    this.#requests.set(request.name, request);
    try {
      if (this.#closing !== undefined) throw closedError(this.name);
      await request.prepare();
      await request.ready.promise;
      this.#sequences.push(new DecodeSequence(this.#context, request, (ended) => this.#finish(ended)));
    } catch (error) {
      await this.#fail(request, asError(error));
    }
  }

  #onMessage(from: string, message: ControlMessage): void {
    const request = this.#requests.get(message.request);
    if (request !== undefined) {
      request.on(message);
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

  #finish(request: DecodeRequest): void {
    request.release();
    this.#requests.delete(request.name);
    this.#options.scheduler.complete(request.name, 'request', request.assignment.epoch);
  }

  async #fail(request: DecodeRequest, error: DualPathError): Promise<void> {
    request.end(error);
    await request.windUp();
    this.#requests.delete(request.name);
    this.#options.scheduler.fail(request.name, request.error ?? error, request.assignment.epoch);
  }

  /** Ends a request here, on behalf of its user or of the scheduler. Unknown ones are none of its business. */
  cancel(name: string, error: DualPathError): void {
    this.#requests.get(name)?.end(error);
  }

  /** A prefill engine is gone for good: its requests end, as if it had said so. */
  peerLost(prefillEngine: string): void {
    this.traffic.forgetPeer(prefillEngine);
    for (const request of this.#requests.values()) {
      if (request.assignment.prefillEngine !== prefillEngine) continue;
      const message = `prefill engine '${prefillEngine}' was lost`;
      request.on({ kind: 'abort', request: request.name, code: 'PEER_LOST', message });
    }
  }

  /** Every request ends (CLOSED), peers no longer reach this engine's memory, then memory goes. Idempotent. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    await this.#loop.stop();
    for (const request of this.#requests.values()) request.end(closedError(this.name));
    this.#sequences.close();
    await this.traffic.close();
    this.#unlisten();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

function closedError(name: string): DualPathError {
  return new DualPathError('CLOSED', `decode engine '${name}' has been closed`, { engine: name });
}
