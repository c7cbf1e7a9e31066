/** The scheduler, and the requests' tokens, as an engine process sees them: at its driver. */
import type { z } from 'zod';
import type { Rpc } from '../control/index.js';
import { DualPathError } from '../errors/index.js';
import type { PromptSource } from '../engine/index.js';
import type { Assignment, EngineLoad, SchedulerClient, Stage } from '../scheduler/index.js';
import { assignmentsSchema, promptTokensSchema } from './protocol.js';

export class RemoteScheduler implements SchedulerClient {
  readonly #rpc: Rpc;
  readonly #driver: string;

  constructor(rpc: Rpc, driver: string) {
    this.#rpc = rpc;
    this.#driver = driver;
  }

  submit(): Promise<void> {
    return Promise.reject(
      new DualPathError('INVALID_ARGUMENT', 'requests are submitted where the scheduler is'),
    );
  }

  async fetch(group: string, loads: readonly EngineLoad[], signal?: AbortSignal): Promise<Assignment[]> {
    return await this.#rpc.call(this.#driver, 'fetch', { group, loads }, assignmentsSchema, signal);
  }

  complete(request: string, stage: Stage, admission?: number): void {
    this.#rpc.emit(this.#driver, 'complete', { request, stage, admission: admission ?? null });
  }

  fail(request: string, error: Error, admission?: number): void {
    const code = error instanceof DualPathError ? error.code : 'INTERNAL';
    this.#rpc.emit(this.#driver, 'fail', {
      request,
      code,
      message: error.message.slice(0, 65_536),
      admission: admission ?? null,
    });
  }

  cancel(request: string): void {
    this.fail(request, new DualPathError('CANCELLED', `request ${request} was cancelled`, { request }));
  }

  epoch(): number {
    return 0; // engines do not ask: assignments carry theirs
  }
}

/** Requests whose tokens are kept: what decodes, and a little more. */
const maxKept = 1024;

export class RemotePrompts implements PromptSource {
  readonly #rpc: Rpc;
  readonly #driver: string;
  readonly #kept = new Map<string, z.infer<typeof promptTokensSchema>>();

  constructor(rpc: Rpc, driver: string) {
    this.#rpc = rpc;
    this.#driver = driver;
  }

  async prompt(request: string): Promise<Uint32Array> {
    const tokens = await this.#rpc.call(this.#driver, 'prompt', { request }, promptTokensSchema);
    this.#kept.set(request, tokens);
    if (this.#kept.size > maxKept) {
      const [oldest] = this.#kept.keys();
      this.#kept.delete(oldest!);
    }
    return tokens.prompt;
  }

  maxNewTokens(request: string): number {
    return this.reply(request).length;
  }

  reply(request: string): Uint32Array {
    const kept = this.#kept.get(request);
    if (kept === undefined) throw new DualPathError('CANCELLED', `request '${request}' is over`);
    return kept.reply;
  }
}
