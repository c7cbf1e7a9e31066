import type { ServerResponse } from 'node:http';
import type { Dispatcher } from 'undici';
import { responseHeaders } from './headers.js';
import type { Target } from './target.js';
import { ResponseWatch } from './watch-response.js';

/** Whose request it is. */
export interface AttemptOwner {
  readonly requestId: string;
  /** A head has come. False: it is not wanted, and the attempt is over. */
  accepts(attempt: Attempt): boolean;
  /** The first byte of the body, or the end of an empty one: from here on the client has something. */
  begins(attempt: Attempt): void;
  ended(attempt: Attempt): void;
  /** The replica's side broke; what the client has got so far stands. */
  broke(attempt: Attempt, error: Error): void;
}

/**
 * One try at one target: the replica's bytes to the client as they come, with back-pressure. The head is held back until
 * the body begins, so that what dies before can still be tried elsewhere.
 */
export class Attempt implements Dispatcher.DispatchHandler {
  readonly target: Target;
  readonly startedMs = performance.now();
  status = 0;
  /** The client has been sent the head. */
  committed = false;
  over = false;
  watch: ResponseWatch | null = null;
  lastByteMs = this.startedMs;
  /** Since when the client takes nothing; 0: it does. */
  pausedMs = 0;
  headers: string[] = [];
  readonly #owner: AttemptOwner;
  readonly #response: ServerResponse;
  readonly #wantsId: boolean;
  readonly #ticket: number;
  #controller: Dispatcher.DispatchController | null = null;
  #message: string | undefined;
  #isSent = false;

  constructor(owner: AttemptOwner, target: Target, response: ServerResponse, wantsId: boolean) {
    this.#owner = owner;
    this.target = target;
    this.#response = response;
    this.#wantsId = wantsId;
    this.#ticket = target.began(this, this.startedMs);
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.over) controller.abort(new Error('given up before it was sent'));
  }

  onResponseStart(
    controller: Dispatcher.DispatchController,
    status: number,
    _headers: unknown,
    message?: string,
  ): void {
    if (this.over || status < 200) return;
    this.status = status;
    this.#message = message;
    const { rawHeaders } = controller as unknown as { rawHeaders: Buffer[] };
    this.headers = responseHeaders(rawHeaders, this.#owner.requestId);
    if (!this.#owner.accepts(this)) this.abort();
    else this.watch = new ResponseWatch(this.header('content-type'), this.#wantsId);
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.over) return;
    this.lastByteMs = this.target.aliveMs = performance.now();
    this.watch?.data(chunk);
    if (!this.committed) {
      this.#commit();
      // A body that is whole already leaves with its head, in one write.
      if (this.header('content-length') === String(chunk.length)) {
        this.#isSent = true;
        this.#response.end(chunk);
        return;
      }
    }
    if (this.#response.write(chunk)) return;
    controller.pause();
    this.pausedMs = this.lastByteMs;
    this.#response.once('drain', () => {
      this.pausedMs = 0;
      this.lastByteMs = this.target.aliveMs = performance.now();
      if (!this.over) controller.resume();
    });
  }

  onResponseEnd(): void {
    if (this.over) return;
    if (!this.committed) this.#commit();
    this.#leave();
    if (!this.#isSent) this.#response.end();
    this.#owner.ended(this);
  }

  onResponseError(_controller: unknown, error: Error): void {
    if (this.over) return;
    this.#leave();
    this.#owner.broke(this, error);
  }

  header(name: string): string {
    for (let i = 0; i < this.headers.length; i += 2) {
      if (this.headers[i]!.toLowerCase() === name) return this.headers[i + 1]!;
    }
    return '';
  }

  /** Gives it up: the replica's connection is closed, so that it stops computing. Nobody is told. */
  abort(): void {
    if (this.over) return;
    this.#leave();
    this.#controller?.abort(new Error('given up'));
  }

  #leave(): void {
    this.over = true;
    this.target.attempts.remove(this.#ticket);
  }

  #commit(): void {
    this.committed = true;
    this.#owner.begins(this);
    if (this.#message === undefined || this.#message === '')
      this.#response.writeHead(this.status, this.headers);
    else this.#response.writeHead(this.status, this.#message, this.headers);
  }
}
