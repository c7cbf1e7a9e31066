import { isDualPathError } from '../errors/index.js';
import { jsonValue } from '../json/index.js';
import type { Decision, RequestDecisions, TimedDecision } from './decisions.js';
import type { WaitCause } from './views.js';

export interface DecisionLogOptions {
  /** Requests that are kept; the oldest goes when another comes. Default 4096. */
  readonly maxRequests?: number;
  /** Seconds; default: the process's monotonic clock. */
  readonly now?: () => number;
  /** Told of a request that has ended, while it is still kept. Must not throw. */
  readonly onEnd?: (decisions: RequestDecisions) => void;
}

interface Kept {
  readonly request: string;
  readonly decisions: TimedDecision[];
  dropped: number;
}

/** Submitted, PE, group, DE, read, assigned, ended is seven; retries and waits come on top. */
const maxDecisions = 48;

/**
 * The newest requests and what was decided of each: a bounded memory of the scheduler's reasons, for
 * `dualpath explain`. A request whose name comes again goes on where it stood.
 */
export class DecisionLog {
  readonly #maxRequests: number;
  readonly #now: () => number;
  readonly #onEnd: ((decisions: RequestDecisions) => void) | undefined;
  readonly #requests = new Map<string, Kept>();

  constructor({ maxRequests = 4096, now = monotonicS, onEnd }: DecisionLogOptions = {}) {
    this.#maxRequests = maxRequests;
    this.#now = now;
    this.#onEnd = onEnd;
  }

  /** Requests that are kept now. */
  get size(): number {
    return this.#requests.size;
  }

  find(request: string): RequestDecisions | undefined {
    return this.#requests.get(request);
  }

  add(request: string, decision: Decision): void {
    const kept = this.#of(request);
    if (kept.decisions.length === maxDecisions) kept.dropped++;
    else kept.decisions.push({ atS: this.#now(), ...decision });
  }

  /** One time after the other it waits for the same: counted, with the newest reason. */
  wait(
    request: string,
    cause: WaitCause,
    last: Extract<Decision, { kind: 'prefill' } | { kind: 'decode' }>,
  ): void {
    const { decisions } = this.#of(request);
    const before = decisions.at(-1);
    if (before?.kind !== 'wait' || before.cause !== cause) {
      this.add(request, { kind: 'wait', cause, times: 1, last });
      return;
    }
    decisions[decisions.length - 1] = { ...before, times: before.times + 1, last };
  }

  ended(request: string, error: Error | null): void {
    const code = isDualPathError(error) ? error.code : 'INTERNAL';
    this.add(request, { kind: 'end', error: error && { code, message: error.message } });
    this.#onEnd?.(this.#requests.get(request)!);
  }

  #of(request: string): Kept {
    const kept = this.#requests.get(request);
    if (kept !== undefined) return kept;
    if (this.#requests.size === this.#maxRequests) {
      const [oldest] = this.#requests.keys();
      this.#requests.delete(oldest!);
    }
    const made: Kept = { request, decisions: [], dropped: 0 };
    this.#requests.set(request, made);
    return made;
  }
}

/** One line of JSON, keys in snake_case: a line of `replay --decisions`, an answer of `serve`. */
export function decisionsDocument(decisions: RequestDecisions, more: Record<string, unknown> = {}): string {
  return JSON.stringify(jsonValue({ ...more, ...decisions }));
}

function monotonicS(): number {
  return performance.now() / 1000;
}
