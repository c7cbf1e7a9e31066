/**
 * What every call of an engine takes: a signal, a deadline. Either stops what has not begun; what is under way ends
 * first, and only then does the call (the rule of ownership: memory in flight belongs to the operation).
 */
import { DualPathError, isDualPathError } from '../errors/index.js';

export interface CallOptions {
  /** Aborted: the call ends with CANCELLED, or with DEADLINE if it is one of AbortSignal.timeout(). */
  readonly signal?: AbortSignal;
  /** Milliseconds from now on; when they have passed the call ends with DEADLINE. */
  readonly deadlineMs?: number;
}

const maxDeadlineMs = 2 ** 31 - 1; // what a timer takes

export class Interruption {
  /** Aborted by whichever comes first; undefined when neither was given. */
  readonly signal: AbortSignal | undefined;
  readonly #end: () => void;
  readonly #deadlineMs: number | undefined;

  /** @throws INVALID_ARGUMENT for a deadline that is no number of milliseconds */
  constructor({ signal, deadlineMs }: CallOptions) {
    this.#deadlineMs = deadlineMs;
    if (deadlineMs === undefined) {
      this.signal = signal;
      this.#end = () => undefined;
      return;
    }
    if (!(deadlineMs >= 0 && deadlineMs <= maxDeadlineMs)) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `deadlineMs is ${deadlineMs}; milliseconds from 0 to ${maxDeadlineMs} are possible`,
        { deadline_ms: String(deadlineMs), limit_ms: maxDeadlineMs },
      );
    }
    const controller = new AbortController();
    this.signal = controller.signal;
    const timer = setTimeout(
      () => controller.abort(new DOMException('the deadline has passed', 'TimeoutError')),
      deadlineMs,
    );
    const onAbort = (): void => controller.abort(signal?.reason);
    signal?.addEventListener('abort', onAbort, { once: true });
    if (signal?.aborted === true) onAbort();
    this.#end = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', onAbort);
    };
  }

  get stopped(): boolean {
    return this.signal?.aborted === true;
  }

  /** @throws CANCELLED, DEADLINE */
  throwIfStopped(what: string): void {
    if (this.stopped) throw this.explain(new DualPathError('CANCELLED', `${what} was cancelled`));
  }

  /** CANCELLED is DEADLINE where time has run out. */
  explain<T>(error: T): T | DualPathError {
    if (!isDualPathError(error, 'CANCELLED') || !this.#timedOut()) return error;
    const limit = this.#deadlineMs === undefined ? '' : ` of ${this.#deadlineMs} ms`;
    return new DualPathError(
      'DEADLINE',
      `the deadline${limit} passed: ${error.message}; nothing of it is in flight any more`,
      { ...error.details, deadline_ms: this.#deadlineMs ?? null },
      { cause: error },
    );
  }

  #timedOut(): boolean {
    const reason: unknown = this.signal?.reason;
    return reason instanceof DOMException && reason.name === 'TimeoutError';
  }

  /** Lets go of the timer and the caller's signal. */
  end(): void {
    this.#end();
  }
}
