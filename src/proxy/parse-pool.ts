import { Worker } from 'node:worker_threads';
import { ApiError, type Api, type ApiErrorOptions } from '../openai/index.js';
import type { PrepareOptions, Prepared } from './prepare.js';

export interface ParseTask {
  readonly id: number;
  readonly api: Api;
  /** Transferred there and back, never copied. */
  readonly body: ArrayBuffer;
  readonly bytes: number;
  readonly tenant: string;
}

export interface ParseReply {
  readonly id: number;
  readonly body: ArrayBuffer;
  readonly bytes: number;
  readonly prepared: Prepared | null;
  readonly error: { status: number; message: string; options: ApiErrorOptions } | null;
}

interface Waiting {
  readonly worker: Worker;
  readonly resolve: (value: Prepared & { body: Buffer }) => void;
  readonly reject: (error: Error) => void;
}

const tasksMax = 1024;

/** Threads that parse and hash large bodies, so that they delay nobody's stream. */
export class ParsePool {
  readonly #workers: Worker[] = [];
  readonly #waiting = new Map<number, Waiting>();
  readonly #options: PrepareOptions;
  #next = 0;
  #closed = false;

  constructor(options: PrepareOptions, threads: number) {
    this.#options = options;
    for (let i = 0; i < threads; i++) this.#add();
  }

  /** @throws ApiError 400 as `Preparer` does, 429 where too many wait */
  prepare(api: Api, body: Buffer, tenant: string): Promise<Prepared & { body: Buffer }> {
    const worker = this.#workers[this.#next % this.#workers.length];
    if (worker === undefined || this.#waiting.size >= tasksMax) {
      throw new ApiError(429, 'too many large requests wait to be parsed', {
        headers: { 'retry-after': '1' },
      });
    }
    const id = this.#next++;
    // A small one, from Node's pool, shares its memory with others.
    const isOwn = body.byteOffset === 0 && body.buffer.byteLength > Buffer.poolSize;
    const memory = (isOwn ? body.buffer : Uint8Array.from(body).buffer) as ArrayBuffer;
    const bytes = body.length;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { worker, resolve, reject });
      worker.postMessage({ id, api, body: memory, bytes, tenant } satisfies ParseTask, [memory]);
    });
  }

  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all(this.#workers.map((worker) => worker.terminate()));
  }

  #add(): void {
    const worker = new Worker(new URL('./parse-worker.js', import.meta.url), { workerData: this.#options });
    worker.unref();
    worker.on('message', (reply: ParseReply) => this.#reply(reply));
    worker.on('error', () => undefined);
    worker.on('exit', () => this.#lost(worker));
    this.#workers.push(worker);
  }

  #reply({ id, body, bytes, prepared, error }: ParseReply): void {
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (prepared !== null) waiting?.resolve({ ...prepared, body: Buffer.from(body, 0, bytes) });
    else waiting?.reject(new ApiError(error?.status ?? 500, error?.message ?? 'lost', error?.options));
  }

  /** A worker that died, of memory most likely, takes its tasks with it. */
  #lost(worker: Worker): void {
    this.#workers.splice(this.#workers.indexOf(worker), 1);
    for (const [id, waiting] of this.#waiting) {
      if (waiting.worker !== worker) continue;
      this.#waiting.delete(id);
      waiting.reject(new ApiError(500, 'the thread that parsed the body has died'));
    }
    if (!this.#closed) this.#add();
  }
}
