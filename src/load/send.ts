import type { Pool, Dispatcher } from 'undici';
import { SseLines } from '../openai/index.js';

/** What became of a request, in milliseconds on one clock. */
export interface Sent {
  ok: boolean;
  status: number;
  error: string | null;
  startMs: number;
  firstMs: number;
  endMs: number;
  /** Between two pieces of the stream. */
  gapsMs: number[];
  outputTokens: number;
  promptTokens: number;
  cachedTokens: number | null;
}

interface Usage {
  prompt_tokens?: number;
  completion_tokens?: number;
  prompt_tokens_details?: { cached_tokens?: number } | null;
}

/** Sends one streaming request; ends with what became of it, never with an error. */
export function send(
  pool: Pool,
  path: string,
  headers: Record<string, string>,
  body: object,
  signal: AbortSignal,
): Promise<Sent> {
  return new Promise((resolve) => {
    const reader = new Reader(resolve, signal);
    pool.dispatch({ path, method: 'POST', headers, body: JSON.stringify(body) }, reader);
  });
}

class Reader implements Dispatcher.DispatchHandler {
  readonly #sent: Sent = {
    ok: false,
    status: 0,
    error: null,
    startMs: performance.now(),
    firstMs: 0,
    endMs: 0,
    gapsMs: [],
    outputTokens: 0,
    promptTokens: 0,
    cachedTokens: null,
  };
  readonly #resolve: (sent: Sent) => void;
  readonly #signal: AbortSignal;
  readonly #lines = new SseLines();
  #controller: Dispatcher.DispatchController | null = null;
  #lastMs = 0;
  #pieces = 0;
  readonly #abort = (): void => this.#controller?.abort(new Error('interrupted'));

  constructor(resolve: (sent: Sent) => void, signal: AbortSignal) {
    this.#resolve = resolve;
    this.#signal = signal;
    signal.addEventListener('abort', this.#abort, { once: true });
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#signal.aborted) this.#abort();
  }

  onResponseStart(_controller: Dispatcher.DispatchController, status: number): void {
    if (status >= 200) this.#sent.status = status;
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#sent.status !== 200) this.#sent.error ??= chunk.toString('utf8', 0, 300);
    else this.#lines.feed(chunk, (text) => this.#data(text));
  }

  onResponseEnd(): void {
    const { status, error, firstMs } = this.#sent;
    this.#end(
      status === 200 && error === null && firstMs > 0,
      error ?? (firstMs > 0 ? null : 'an empty stream'),
    );
  }

  onResponseError(_controller: unknown, error: Error): void {
    const { code } = error as NodeJS.ErrnoException;
    this.#end(false, this.#sent.error ?? code ?? error.message);
  }

  #data(text: string): void {
    if (text === '[DONE]') return;
    const nowMs = performance.now();
    if (text.includes('"error"') || text.includes('"usage"')) this.#extra(text);
    if (text.includes('"choices":[]')) return;
    if (this.#sent.firstMs === 0) this.#sent.firstMs = nowMs;
    else this.#sent.gapsMs.push(nowMs - this.#lastMs);
    this.#lastMs = nowMs;
    this.#pieces++;
  }

  #extra(text: string): void {
    const value = JSON.parse(text) as { error?: { message?: string } | null; usage?: Usage | null };
    if (value.error !== undefined && value.error !== null)
      this.#sent.error = value.error.message ?? 'an error event';
    const { usage } = value;
    if (usage === undefined || usage === null) return;
    this.#sent.outputTokens = usage.completion_tokens ?? 0;
    this.#sent.promptTokens = usage.prompt_tokens ?? 0;
    this.#sent.cachedTokens = usage.prompt_tokens_details?.cached_tokens ?? null;
  }

  #end(ok: boolean, error: string | null): void {
    this.#signal.removeEventListener('abort', this.#abort);
    // Without a usage a piece counts as a token.
    if (this.#sent.outputTokens === 0) this.#sent.outputTokens = this.#pieces;
    this.#sent.endMs = performance.now();
    this.#resolve({ ...this.#sent, ok, error });
  }
}
