import type { IncomingMessage, ServerResponse } from 'node:http';
import { Transform } from 'node:stream';
import { ApiError } from '../openai/index.js';
import { Attempt, type AttemptOwner } from './attempt.js';
import { sendError } from './send-error.js';
import { requestHeaders, requestIdOf } from './headers.js';
import type { Target } from './target.js';

export interface PassageDesk {
  readonly bodyBytesMax: number;
  left(passage: Passage, outcome: string): void;
  failed(target: Target, isDown: boolean): void;
}

/** A request to a path whose prompts nobody looks at: to the least busy replica, its body as it comes, tried once. */
export class Passage implements AttemptOwner {
  attempt: Attempt | null = null;
  readonly requestId: string;
  readonly #desk: PassageDesk;
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;
  #over = false;

  constructor(desk: PassageDesk, request: IncomingMessage, response: ServerResponse) {
    this.#desk = desk;
    this.#request = request;
    this.requestId = requestIdOf(request);
    this.#response = response;
    response.once('close', () => {
      this.attempt?.abort();
      this.#leave('client_left');
    });
  }

  /** `body` where it has been read already. */
  start(target: Target, body: Buffer | null): void {
    const attempt = new Attempt(this, target, this.#response, false);
    this.attempt = attempt;
    const { rawHeaders, method = 'GET', url = '/' } = this.#request;
    const headers = requestHeaders(rawHeaders, this.requestId);
    if (target.rank !== null) headers.push('x-data-parallel-rank', String(target.rank));
    const length = this.#request.headers['content-length'];
    const hasBody = length !== undefined || this.#request.headers['transfer-encoding'] !== undefined;
    if (body === null && length !== undefined) headers.push('content-length', length);
    target.replica.pool.dispatch(
      {
        path: url,
        method: method,
        headers,
        body: body ?? (hasBody ? this.#limited() : null),
      },
      attempt,
    );
  }

  accepts(): boolean {
    return !this.#over;
  }

  begins(): void {
    // Nothing to account for.
  }

  ended({ status, target }: Attempt): void {
    if (status >= 500) this.#desk.failed(target, false);
    this.#leave(status < 400 ? 'ok' : 'rejected');
  }

  broke({ committed, target }: Attempt, error: Error): void {
    const { code } = error as NodeJS.ErrnoException;
    if (error instanceof ApiError) {
      sendError(this.#response, error);
      this.#leave('refused');
      return;
    }
    this.#desk.failed(target, code === 'ECONNREFUSED');
    if (committed) this.#response.destroy();
    else {
      sendError(
        this.#response,
        new ApiError(502, `the replica ${target.name} broke off (${code ?? error.message})`),
      );
    }
    this.#leave('failed');
  }

  #limited(): Transform {
    const { bodyBytesMax } = this.#desk;
    let bytes = 0;
    const limited = new Transform({
      transform(chunk: Buffer, _encoding, done) {
        bytes += chunk.length;
        if (bytes <= bodyBytesMax) done(null, chunk);
        else
          done(new ApiError(413, `the body is larger than ${bodyBytesMax} bytes, the limit of this router`));
      },
    });
    this.#request.once('close', () => {
      if (!this.#request.complete) limited.destroy();
    });
    return this.#request.pipe(limited);
  }

  #leave(outcome: string): void {
    if (this.#over) return;
    this.#over = true;
    this.#desk.left(this, outcome);
  }
}
