import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { z } from 'zod';
import {
  ApiError,
  apiOf,
  canonicalPrompt,
  errorBody,
  parseBody,
  PromptKeys,
  type Api,
} from '../openai/index.js';
import { EmulatedEngine, type EngineOptions } from './engine.js';
import { streamEnd, streamHead, streamToken, wholeAnswer, type Answer } from './formats.js';

export interface ReplicaOptions extends EngineOptions {
  readonly host: string;
  readonly port: number;
  readonly models: readonly string[];
  /** Data-parallel ranks, each an engine of its own. */
  readonly ranks: number;
  /** Bytes of text that count as a token. */
  readonly bytesPerToken: number;
}

export const defaultReplica: ReplicaOptions = {
  host: '127.0.0.1',
  port: 8001,
  models: ['emulated'],
  ranks: 1,
  bytesPerToken: 4,
  blockTokens: 16,
  cacheTokens: 1_000_000,
  prefillSPerToken: 0.00016,
  tokenMs: 10,
};

export const faultKinds = ['none', 'hang', 'slow', 'error', 'die', 'garbage', 'error-event'] as const;
const faultSchema = z.strictObject({
  kind: z.enum(faultKinds),
  /** Of `slow`. */
  factor: z.number().min(1).max(1e6).default(10),
  /** Tokens before `die` and `error-event`. */
  after_tokens: z.number().int().min(0).default(2),
});
type Fault = z.infer<typeof faultSchema>;

const bodyBytesMax = 64 * 1024 * 1024;
const defaultOutputTokens = 16;

/**
 * An OpenAI-compatible server without a model, for demonstrations and tests. Prompts are cut into tokens of a fixed
 * number of bytes, the prefix cache is real, time is that of a model of time. Every answer's `server` header says so.
 */
export class EmulatedReplica {
  readonly options: ReplicaOptions;
  readonly #server: Server;
  readonly #engines: readonly EmulatedEngine[];
  readonly #keys: PromptKeys;
  readonly #responses = new Set<string>();
  #fault: Fault = { kind: 'none', factor: 1, after_tokens: 0 };
  #next = 0;
  #turn = 0;

  constructor(options: Partial<ReplicaOptions> = {}) {
    this.options = { ...defaultReplica, ...options };
    const { blockTokens, bytesPerToken, ranks } = this.options;
    this.#keys = new PromptKeys({ blockTokens, bytesPerToken, secret: new Uint8Array(1) });
    this.#engines = Array.from({ length: ranks }, () => new EmulatedEngine(this.options));
    this.#server = createServer((request, response) => {
      response.setHeader('server', 'dualpath-emulated-replica');
      this.#handle(request, response).catch((error: unknown) => refuse(response, error));
    });
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get url(): string {
    return `http://${this.options.host}:${this.port}`;
  }

  get engines(): readonly EmulatedEngine[] {
    return this.#engines;
  }

  start(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(this.options.port, this.options.host, () => resolve());
    });
  }

  async close(): Promise<void> {
    for (const engine of this.#engines) engine.close();
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.#server.closeAllConnections();
    await closed;
  }

  /** What POST /fault does. @throws ApiError 400 */
  setFault(value: unknown): void {
    const parsed = faultSchema.safeParse(value);
    if (!parsed.success) throw new ApiError(400, z.prettifyError(parsed.error));
    this.#fault = parsed.data;
    const { kind, factor } = this.#fault;
    for (const engine of this.#engines) engine.setFault(kind === 'slow' ? factor : 1, kind === 'hang');
  }

  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = request.url!.split('?', 1)[0]!;
    const api = request.method === 'POST' ? apiOf(path) : undefined;
    if (api !== undefined) this.#complete(api, request, await bodyOf(request), response);
    else if (path === '/fault' && request.method === 'POST') {
      this.setFault(parseBody(await bodyOf(request)));
      json(response, 200, this.#fault);
    } else if (path === '/health') json(response, 200, {});
    else if (path === '/metrics') response.end(this.#metrics());
    else if (path === '/v1/models') json(response, 200, { object: 'list', data: this.#models() });
    else if (path === '/v1/embeddings') {
      await bodyOf(request);
      json(response, 200, { object: 'list', data: [], emulated: true });
    } else throw new ApiError(404, `the emulated replica has no ${path}`);
  }

  #complete(api: Api, request: IncomingMessage, body: Buffer, response: ServerResponse): void {
    if (this.#fault.kind === 'error') throw new ApiError(500, 'a fault that was asked for');
    if (this.#fault.kind === 'garbage') {
      response.socket?.end('\u0000\u0001garbage\r\n\r\n');
      return;
    }
    const parsed = parseBody(body);
    const prompt = canonicalPrompt(api, parsed);
    if (!this.options.models.includes(prompt.model)) {
      throw new ApiError(404, `the model ${prompt.model} is not served here`, { code: 'model_not_found' });
    }
    const previous = prompt.previousResponseId;
    if (previous !== null && !this.#responses.has(previous)) {
      throw new ApiError(404, `there is no response ${previous} here`, { code: 'response_not_found' });
    }
    const engine = this.#engineFor(request, parsed);
    const keyed = this.#keys.keysOf(prompt, '');
    const answer: Answer = {
      id: `${api === 'responses' ? 'resp' : 'emulated'}_${this.options.port}_${process.pid}_${this.#next++}`,
      model: prompt.model,
      promptTokens: keyed.promptTokens,
      cachedTokens: 0,
      outputTokens: 0,
    };
    if (api === 'responses') this.#remember(answer.id);
    const options = parsed['stream_options'] as { include_usage?: boolean } | undefined;
    const outputTokens = prompt.maxOutputTokens ?? defaultOutputTokens;
    const write = prompt.stream
      ? this.#streamer(api, answer, response, options?.include_usage === true)
      : wholeWriter(api, answer, response);
    const job = engine.submit(keyed, outputTokens, {
      token: (index) => {
        answer.outputTokens = index + 1;
        answer.cachedTokens = job.cachedTokens;
        write.token(index);
      },
      end: () => {
        answer.cachedTokens = job.cachedTokens;
        write.end();
      },
    });
    response.once('close', () => engine.cancel(job));
  }

  #streamer(api: Api, answer: Answer, response: ServerResponse, includeUsage: boolean): Writer {
    response.writeHead(200, {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-cache',
    });
    response.flushHeaders();
    return {
      token: (index) => {
        const { kind, after_tokens: after } = this.#fault;
        if (response.writableEnded || response.destroyed) return;
        if (kind === 'die' && index >= after) response.destroy();
        else if (kind === 'error-event' && index === after) {
          response.end(`data: ${errorBody(new ApiError(500, 'a fault that was asked for'))}\n\n`);
        } else response.write((index === 0 ? streamHead(api, answer) : '') + streamToken(api, answer, index));
      },
      end: () => {
        if (!response.writableEnded) response.end(streamEnd(api, answer, includeUsage));
      },
    };
  }

  #remember(id: string): void {
    this.#responses.add(id);
    if (this.#responses.size > 10_000) this.#responses.delete(this.#responses.values().next().value!);
  }

  #engineFor(request: IncomingMessage, body: Record<string, unknown>): EmulatedEngine {
    const named = request.headers['x-data-parallel-rank'] ?? body['data_parallel_rank'];
    const rank = named === undefined ? this.#turn++ % this.#engines.length : Number(named);
    const engine = this.#engines[rank];
    if (engine === undefined) throw new ApiError(400, `there is no data-parallel rank ${String(named)}`);
    return engine;
  }

  #models(): object[] {
    return this.options.models.map((id) => ({
      id,
      object: 'model',
      created: 0,
      owned_by: 'dualpath-emulated',
    }));
  }

  /** vLLM's names, so that whatever reads vLLM's metrics reads these. */
  #metrics(): string {
    const lines: string[] = ['# emulated: no model runs here'];
    const add = (name: string, type: string, of: (engine: EmulatedEngine) => number): void => {
      lines.push(`# TYPE vllm:${name} ${type}`);
      for (const [rank, engine] of this.#engines.entries()) {
        lines.push(
          `vllm:${name}{engine="${rank}",model_name="${this.options.models[0] ?? ''}"} ${of(engine)}`,
        );
      }
    };
    add('num_requests_running', 'gauge', (engine) => engine.runningRequests);
    add('num_requests_waiting', 'gauge', (engine) => engine.waitingRequests);
    add('kv_cache_usage_perc', 'gauge', (engine) => engine.cacheUsage);
    add('prompt_tokens_total', 'counter', (engine) => engine.promptTokens);
    add('generation_tokens_total', 'counter', (engine) => engine.generatedTokens);
    add('iteration_tokens_total_count', 'counter', (engine) => engine.steps);
    add('prefix_cache_hits_total', 'counter', (engine) => engine.cachedTokens);
    add('request_success_total', 'counter', (engine) => engine.finished);
    return `${lines.join('\n')}\n`;
  }
}

interface Writer {
  token(index: number): void;
  end(): void;
}

function wholeWriter(api: Api, answer: Answer, response: ServerResponse): Writer {
  return { token: () => undefined, end: () => json(response, 200, wholeAnswer(api, answer)) };
}

function json(response: ServerResponse, status: number, value: object): void {
  const body = JSON.stringify(value);
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
  });
  response.end(body);
}

async function bodyOf(request: IncomingMessage): Promise<Buffer> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of request as AsyncIterable<Buffer>) {
    bytes += part.length;
    if (bytes > bodyBytesMax) throw new ApiError(413, 'the body is too large');
    parts.push(part);
  }
  return Buffer.concat(parts);
}

function refuse(response: ServerResponse, error: unknown): void {
  if (response.headersSent || response.destroyed) {
    response.destroy();
    return;
  }
  const fault = error instanceof ApiError ? error : new ApiError(500, String(error));
  const body = errorBody(fault);
  response.writeHead(fault.status, { 'content-type': 'application/json' });
  response.end(body);
}
