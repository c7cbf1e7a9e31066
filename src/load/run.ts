import { setMaxListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { Pool } from 'undici';
import { DualPathError } from '../errors/index.js';
import type { Session } from '../trace/index.js';
import { planLoad, PromptMaker, type PlanOptions, type PlannedRequest } from './plan.js';
import { send, type Sent } from './send.js';
import { summarize, type LoadSummary } from './summary.js';

export interface LoadOptions extends PlanOptions {
  /** `http://host:port` of a server or router. */
  readonly url: string;
  readonly model: string;
  readonly endpoint: 'completions' | 'chat';
  /** Token ids below this as prompts; null: text. */
  readonly vocabulary: number | null;
  readonly sloS: number;
  /** Requests under way at once; later ones wait, and their time to first token counts from when they were due. */
  readonly concurrency: number;
  readonly token?: string | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((done: number, planned: number, failed: number) => void) | undefined;
  /** Each request as it ends, for those who look at a run over time. */
  readonly onSent?: ((sent: Sent, request: PlannedRequest) => void) | undefined;
}

/** Replays a trace over HTTP, at its times or Poisson's, whatever the server makes of it (an open loop). */
export async function runLoad(sessions: readonly Session[], options: LoadOptions): Promise<LoadSummary> {
  const plan = planLoad(sessions, options);
  if (plan.length === 0) throw new DualPathError('INVALID_ARGUMENT', 'there is no request to send');
  const pool = new Pool(originOf(options.url), {
    connections: options.concurrency,
    pipelining: 1,
    headersTimeout: 0,
    bodyTimeout: 0,
    keepAliveTimeout: 4000,
  });
  const maker = new PromptMaker(sessions, options.seed, options.vocabulary);
  const signal = AbortSignal.any(options.signal === undefined ? [] : [options.signal]);
  // One for each request under way.
  setMaxListeners(0, signal);
  const sent: Sent[] = [];
  const promptTokens: number[] = [];
  const underWay = new Set<Promise<void>>();
  const turns = new Map<number, Promise<void>>();
  let failed = 0;
  const startMs = performance.now();
  const one = async (request: PlannedRequest, before: Promise<void> | undefined): Promise<void> => {
    // A turn follows the reply to the one before it.
    await before;
    const dueMs = before === undefined ? startMs + 1000 * request.atS : performance.now();
    const result = await send(
      pool,
      `/v1/${pathOf(options)}`,
      headersOf(options),
      bodyOf(request, maker, options),
      signal,
    );
    result.startMs = Math.min(result.startMs, dueMs);
    if (!result.ok) failed++;
    sent.push(result);
    promptTokens.push(request.promptTokens);
    options.onSent?.(result, request);
    options.onProgress?.(sent.length, plan.length, failed);
  };
  try {
    for (const request of plan) {
      const waitMs = startMs + 1000 * request.atS - performance.now();
      if (waitMs > 0) await sleep(waitMs, undefined, { signal }).catch(() => undefined);
      while (underWay.size >= options.concurrency && !signal.aborted) await Promise.race(underWay);
      if (signal.aborted) break;
      const running = one(request, turns.get(request.session));
      const isLast = request.turn + 1 === sessions[request.session]!.turns.length;
      if (isLast) turns.delete(request.session);
      else turns.set(request.session, running);
      underWay.add(running);
      void running.finally(() => underWay.delete(running));
    }
    await Promise.all(underWay);
  } finally {
    await pool.destroy();
  }
  return summarize({
    url: options.url,
    offeredQps: options.qps,
    planned: plan.length,
    sloS: options.sloS,
    durationS: (performance.now() - startMs) / 1000,
    sent,
    promptTokens,
  });
}

function pathOf({ endpoint }: LoadOptions): string {
  return endpoint === 'chat' ? 'chat/completions' : 'completions';
}

function headersOf({ token }: LoadOptions): Record<string, string> {
  return {
    'content-type': 'application/json',
    ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
  };
}

function bodyOf(request: PlannedRequest, maker: PromptMaker, { model, endpoint }: LoadOptions): object {
  const prompt = maker.promptOf(request);
  return {
    model,
    ...(endpoint === 'chat' ? { messages: [{ role: 'user', content: prompt }] } : { prompt }),
    max_tokens: request.outputTokens,
    // Real models are to answer as long as the trace says; servers that do not know it ignore it.
    ignore_eos: true,
    temperature: 0,
    stream: true,
    stream_options: { include_usage: true },
  };
}

function originOf(url: string): string {
  try {
    const { origin, protocol } = new URL(url);
    if (protocol === 'http:' || protocol === 'https:') return origin;
  } catch {
    // Reported below.
  }
  throw new DualPathError(
    'INVALID_ARGUMENT',
    `${url} is no URL of a server: give one such as http://127.0.0.1:8000`,
    {
      url,
    },
  );
}
