/** Look-ups under way and those that wait for their turn: the pool's threads do a bounded number at a time. */
import { fromNative, type HashRange, type NativeEngine } from '../binding/index.js';
import { DualPathError } from '../errors/index.js';

/** Lookups::kMaxInFlight of the add-on. */
const maxInFlight = 64;
const maxWaiting = 4096;

interface Waiting {
  start(): void;
  fail(error: DualPathError): void;
}

export class LookUps {
  readonly #name: string;
  readonly #handle: NativeEngine;
  readonly #waiting: Waiting[] = [];
  #inFlight = 0;
  #lastId = 0;

  constructor(name: string, handle: NativeEngine) {
    this.#name = name;
    this.#handle = handle;
  }

  /** @throws CAPACITY_EXHAUSTED when too many wait already, CANCELLED, INVALID_ARGUMENT, MEMORY_LIMIT, CLOSED */
  async run(tokens: Uint32Array, range: HashRange, signal?: AbortSignal): Promise<number> {
    throwIfCancelled(signal);
    if (this.#inFlight < maxInFlight) this.#inFlight++;
    else await this.#turn(signal); // whoever ends hands its place over
    const id = (this.#lastId = (this.#lastId + 1) >>> 0);
    const cancel = (): void => this.#handle.cancelHash(id);
    const { firstToken, blockTokens, blocks, keyOffset, lookUp, parentKey } = range;
    try {
      throwIfCancelled(signal);
      const done = this.#handle.hash(
        tokens,
        id,
        firstToken,
        blockTokens,
        blocks,
        keyOffset,
        lookUp,
        parentKey,
      );
      signal?.addEventListener('abort', cancel, { once: true });
      return await done;
    } catch (cause) {
      throw fromNative(cause);
    } finally {
      signal?.removeEventListener('abort', cancel);
      const next = this.#waiting.shift();
      if (next === undefined) this.#inFlight--;
      else next.start();
    }
  }

  /** Those that wait end with CLOSED; those under way with their result. */
  close(): void {
    for (const waiting of this.#waiting.splice(0)) {
      waiting.fail(new DualPathError('CLOSED', `engine '${this.#name}' has been closed`));
    }
  }

  async #turn(signal: AbortSignal | undefined): Promise<void> {
    if (this.#waiting.length >= maxWaiting) {
      throw new DualPathError(
        'CAPACITY_EXHAUSTED',
        `engine '${this.#name}': ${maxWaiting} look-ups wait already; wait for one to end`,
        { waiting: this.#waiting.length },
      );
    }
    let abort: (() => void) | undefined;
    try {
      await new Promise<void>((resolve, reject) => {
        const waiting = { start: resolve, fail: reject };
        this.#waiting.push(waiting);
        if (signal === undefined) return;
        abort = (): void => {
          const at = this.#waiting.indexOf(waiting);
          if (at >= 0) this.#waiting.splice(at, 1);
          reject(cancelled(signal));
        };
        signal.addEventListener('abort', abort, { once: true });
      });
    } finally {
      if (abort !== undefined) signal?.removeEventListener('abort', abort);
    }
  }
}

function throwIfCancelled(signal: AbortSignal | undefined): void {
  if (signal?.aborted === true) throw cancelled(signal);
}

function cancelled(signal: AbortSignal): DualPathError {
  return new DualPathError(
    'CANCELLED',
    'the look-up was cancelled by its caller',
    {},
    { cause: signal.reason },
  );
}
