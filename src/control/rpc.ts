/** Calls and one-way events between nodes, over a channel of the control connection. */
import { z } from 'zod';
import { DualPathError, errorCodes, type ErrorCode } from '../errors/index.js';
import type { ControlNode } from './node.js';

const channel = 'rpc';
const maxCalls = 65_536;

const id = z.int().min(1);
const method = z.string().min(1).max(64);
const message = z.union([
  z.strictObject({ call: id, method, params: z.unknown() }),
  z.strictObject({ event: method, params: z.unknown() }),
  z.strictObject({ cancel: id }),
  z.strictObject({ answer: id, result: z.unknown() }),
  z.strictObject({
    answer: id,
    error: z.strictObject({ code: z.string().max(64), message: z.string().max(65_536) }),
  }),
]);

interface Pending {
  readonly node: string;
  readonly result: z.ZodType;
  resolve(result: unknown): void;
  reject(error: Error): void;
}

type Handler = (node: string, params: unknown, signal: AbortSignal) => Promise<unknown>;
type Listener = (node: string, params: unknown) => void;

export class Rpc {
  readonly #node: ControlNode;
  readonly #pending = new Map<number, Pending>();
  readonly #running = new Map<string, { readonly node: string; readonly abort: AbortController }>();
  readonly #handlers = new Map<string, Handler>();
  readonly #listeners = new Map<string, Listener>();
  #lastCall = 0;

  constructor(node: ControlNode) {
    this.#node = node;
    node.channel(channel, message, (from, said) => this.#take(from, said));
    node.listen({ lost: (lost, error) => this.#lost(lost, error) });
  }

  /** Answers calls of `name`; `signal` says that the caller no longer waits. Returns how to end it. */
  serve<P>(
    name: string,
    params: z.ZodType<P>,
    handler: (node: string, params: P, signal: AbortSignal) => Promise<unknown>,
  ): void {
    this.#handlers.set(name, (node, given, signal) => handler(node, params.parse(given), signal));
  }

  /** Hears events of `name`. */
  on<P>(name: string, params: z.ZodType<P>, listener: (node: string, params: P) => void): void {
    this.#listeners.set(name, (node, given) => listener(node, params.parse(given)));
  }

  emit(node: string, event: string, params: unknown): void {
    this.#node.send(node, channel, { event, params });
  }

  /** @throws what the handler threw, with its code; PEER_LOST; CANCELLED by the signal */
  async call<R>(
    node: string,
    name: string,
    params: unknown,
    result: z.ZodType<R>,
    signal?: AbortSignal,
  ): Promise<R> {
    if (this.#pending.size >= maxCalls) {
      throw new DualPathError(
        'CAPACITY_EXHAUSTED',
        `${maxCalls} calls wait for their answers, the most that may`,
      );
    }
    const call = ++this.#lastCall;
    return await new Promise<R>((resolve, reject) => {
      const over = (): void => {
        this.#pending.delete(call);
        signal?.removeEventListener('abort', onAbort);
      };
      const onAbort = (): void => {
        over();
        this.#node.send(node, channel, { cancel: call });
        reject(new DualPathError('CANCELLED', `call of ${name} at '${node}' was given up by its caller`));
      };
      if (signal?.aborted === true) {
        onAbort();
        return;
      }
      signal?.addEventListener('abort', onAbort);
      this.#pending.set(call, {
        node,
        result,
        resolve: (value) => {
          over();
          resolve(value as R);
        },
        reject: (error) => {
          over();
          reject(error);
        },
      });
      if (this.#node.send(node, channel, { call, method: name, params })) return;
      this.#pending.get(call)?.reject(new DualPathError('PEER_LOST', `'${node}' is not connected`, { node }));
    });
  }

  #take(from: string, said: z.infer<typeof message>): void {
    if ('event' in said) {
      const listener = this.#listeners.get(said.event);
      if (listener === undefined) throw unknownMethod(said.event);
      listener(from, said.params);
    } else if ('call' in said) {
      const handler = this.#handlers.get(said.method);
      if (handler === undefined) throw unknownMethod(said.method);
      void this.#run(from, said.call, handler, said.params);
    } else if ('cancel' in said) {
      this.#running.get(`${said.cancel} ${from}`)?.abort.abort();
    } else {
      const pending = this.#pending.get(said.answer);
      if (pending?.node !== from) return; // nobody waits any more
      if ('error' in said) pending.reject(remoteError(said.error));
      else pending.resolve(pending.result.parse(said.result));
    }
  }

  async #run(from: string, call: number, handler: Handler, params: unknown): Promise<void> {
    const key = `${call} ${from}`;
    const abort = new AbortController();
    this.#running.set(key, { node: from, abort });
    try {
      const result = await handler(from, params, abort.signal);
      this.#node.send(from, channel, { answer: call, result: result ?? null });
    } catch (cause) {
      const { code, message: why } = cause instanceof DualPathError ? cause : malformed(cause);
      this.#node.send(from, channel, { answer: call, error: { code, message: why.slice(0, 65_536) } });
    } finally {
      this.#running.delete(key);
    }
  }

  #lost(node: string, error: DualPathError): void {
    for (const pending of [...this.#pending.values()]) if (pending.node === node) pending.reject(error);
    for (const running of this.#running.values()) if (running.node === node) running.abort.abort();
  }
}

function unknownMethod(name: string): DualPathError {
  return new DualPathError('INVALID_ARGUMENT', `there is no method '${name}'`);
}

function malformed(cause: unknown): DualPathError {
  const invalid = cause instanceof z.ZodError;
  return new DualPathError(
    invalid ? 'INVALID_ARGUMENT' : 'INTERNAL',
    cause instanceof Error ? cause.message : String(cause),
  );
}

/** An error that happened in another process. */
function remoteError({ code, message: why }: { code: string; message: string }): DualPathError {
  return new DualPathError(code in errorCodes ? (code as ErrorCode) : 'INTERNAL', why);
}
