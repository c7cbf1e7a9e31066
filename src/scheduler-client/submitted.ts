import { DualPathError } from '../errors/index.js';
import type { Stage } from '../scheduler/index.js';
import { TokenLog } from '../leases/index.js';

export interface SubmissionOptions {
  /** The idempotency key; default: a random one. */
  readonly key?: string;
  readonly model?: string;
  readonly promptTokens: number;
  /** Leading prompt tokens that look-up in the block store found: whole blocks. */
  readonly hitTokens: number;
  readonly maxNewTokens: number;
  readonly tenant?: string;
  readonly priority?: number;
  /** From submission to end. */
  readonly deadlineS?: number;
  /** What the engines need besides: the prompt, or where it is. */
  readonly payload?: Uint8Array;
  /** W3C; where spans are recorded the request's own is its child, and what engines are given. */
  readonly traceparent?: string;
  /** `onProgress` hears of hand-overs and stages. */
  readonly progress?: boolean;
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: RequestProgress) => void;
  /** Once, however it ends. Must not throw. */
  readonly onEnded?: (error: Error | undefined, outcome?: RequestOutcome) => void;
}

export interface RequestProgress {
  readonly stages: readonly Stage[];
  /** Of a hand-over to engines. */
  readonly prefillEngine?: string;
  readonly decodeEngine?: string;
}

export interface RequestOutcome {
  readonly attempts: number;
  /** Tokens generated. */
  readonly tokens: number;
  readonly decodeEngine: string;
}

export interface TokenBatch {
  /** Index of the first one. */
  readonly first: number;
  readonly tokens: Uint32Array;
}

/** A request on its way. */
export class Submitted {
  readonly key: string;
  readonly options: SubmissionOptions;
  /** Resolves once the scheduler has it. */
  readonly accepted: Promise<void>;
  /** How it ends; rejects with what ended it otherwise. */
  readonly ended: Promise<RequestOutcome>;
  readonly #log = new TokenLog();
  readonly #submittedMs = performance.now();
  readonly #onCancel: () => void;
  #resolveAccepted!: () => void;
  #rejectAccepted!: (error: Error) => void;
  #resolveEnded!: (outcome: RequestOutcome) => void;
  #rejectEnded!: (error: Error) => void;
  #over: { readonly error: DualPathError | undefined } | undefined;
  #wake: (() => void) | undefined;
  cancelled = false;
  wasAccepted = false;

  constructor(key: string, options: SubmissionOptions, onCancel: () => void) {
    this.key = key;
    this.options = options;
    this.#onCancel = onCancel;
    this.accepted = new Promise((resolve, reject) => {
      this.#resolveAccepted = resolve;
      this.#rejectAccepted = reject;
    });
    this.ended = new Promise((resolve, reject) => {
      this.#resolveEnded = resolve;
      this.#rejectEnded = reject;
    });
    // Whoever waits for one of them need not wait for the other.
    this.accepted.catch(() => undefined);
    this.ended.catch(() => undefined);
    const { signal } = options;
    if (signal?.aborted) this.cancel();
    else signal?.addEventListener('abort', this.cancel, { once: true });
  }

  /** It ends with CANCELLED, unless it ends otherwise first. */
  readonly cancel = (): void => {
    if (this.#over) return;
    this.cancelled = true;
    this.#onCancel();
  };

  get received(): number {
    return this.#log.count;
  }

  get receivedTokens(): number[] {
    return [...this.#log.from(0)];
  }

  /** Of its deadline, now. */
  get leftS(): number | undefined {
    const { deadlineS } = this.options;
    if (deadlineS === undefined) return undefined;
    return Math.max(1e-3, deadlineS - (performance.now() - this.#submittedMs) / 1000);
  }

  /** Tokens in order, each once; throws how the request ends, if that is with an error. One consumer. */
  async *tokens(): AsyncGenerator<TokenBatch, void, void> {
    for (let first = 0; ;) {
      const tokens = this.#log.from(first);
      if (tokens.length > 0) {
        yield { first, tokens };
        first += tokens.length;
      } else if (this.#over) {
        if (this.#over.error) throw this.#over.error;
        return;
      } else {
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
      }
    }
  }

  onAccepted(): void {
    this.wasAccepted = true;
    this.#resolveAccepted();
  }

  onProgress(progress: RequestProgress): void {
    this.options.onProgress?.(progress);
  }

  /** @throws INTERNAL when some are missing */
  onTokens(first: number, tokens: Uint32Array): void {
    if (this.#log.append(first, tokens) === undefined) {
      throw new DualPathError(
        'INTERNAL',
        `tokens ${this.#log.count} to ${first} of '${this.key}' are missing`,
      );
    }
    this.#wake?.();
  }

  onEnded(error: DualPathError | undefined, outcome?: RequestOutcome): void {
    if (this.#over) return;
    this.#over = { error };
    this.options.signal?.removeEventListener('abort', this.cancel);
    this.options.onEnded?.(error, outcome);
    this.#wake?.();
    if (error) {
      this.#rejectAccepted(error);
      this.#rejectEnded(error);
    } else {
      this.#resolveAccepted();
      this.#resolveEnded(outcome!);
    }
  }
}
