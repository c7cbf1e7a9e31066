import { DualPathError, isDualPathError } from '../errors/index.js';
import { Admission } from './admission.js';
import type { EngineState } from './ledger.js';
import type { AdmissionOptions } from './options.js';
import type {
  Assignment,
  EngineLoad,
  RequestDescription,
  RequestFailure,
  SchedulerClient,
  Stage,
} from './types.js';
import type { AdmissionStatistics } from './views.js';

interface Waiter {
  resolve(assignments: Assignment[]): void;
  reject(error: Error): void;
}

interface Group {
  readonly engines: readonly string[];
  /** Assignments not fetched yet; no more than requests that run, which the engines' capacity bounds. */
  readonly outbox: Map<string, Assignment>;
  waiter: Waiter | undefined;
}

/**
 * The scheduler for engines of one process: `Admission` behind promises. Each event is dealt with before the
 * call returns; whoever waits hears of it in a microtask.
 */
export class LocalScheduler implements SchedulerClient {
  readonly #admission: Admission;
  readonly #groups = new Map<string, Group>();
  readonly #onFailure: (failure: RequestFailure) => void;
  readonly #onRetry: ((failure: RequestFailure) => void) | undefined;
  /** Requests that may be tried again. */
  readonly #retries = new Map<string, RequestDescription>();
  #closed = false;

  /**
   * @param onFailure hears of every request that ends with an error (`fail`, `cancel`, `engineLost`,
   * `close`), after the account is settled, so that its engines can be told to stop. It must not throw.
   * @param onRetry hears instead of a request that ran when an engine or the connection between two was lost: it is
   * submitted again, once, to be read on the other side. Left out: no request is. It must not throw.
   * @throws INVALID_ARGUMENT
   */
  constructor(
    options: AdmissionOptions,
    onFailure: (failure: RequestFailure) => void = () => undefined,
    onRetry?: (failure: RequestFailure) => void,
  ) {
    this.#admission = new Admission(options);
    this.#onFailure = onFailure;
    this.#onRetry = onRetry;
    const names = new Set(options.engines.map(({ group }) => group));
    for (const name of names) {
      const engines = options.engines.filter(({ group }) => group === name).map(({ engine }) => engine);
      this.#groups.set(name, { engines, outbox: new Map(), waiter: undefined });
    }
  }

  // async, so that what `Admission.submit` throws becomes a rejection
  async submit(request: RequestDescription): Promise<void> {
    if (this.#closed) throw closedError();
    this.#admission.submit(request, performance.now() / 1000);
    if (this.#onRetry !== undefined) this.#retries.set(request.request, request);
    this.#dispatch();
  }

  async fetch(group: string, loads: readonly EngineLoad[], signal?: AbortSignal): Promise<Assignment[]> {
    if (this.#closed) throw closedError();
    if (signal?.aborted) throw cancelledError(group);
    const state = this.#group(group);
    this.#checkLoads(group, state, loads);
    if (state.waiter) {
      throw new DualPathError(
        'CAPACITY_EXHAUSTED',
        `group ${group} already has a fetch outstanding, the limit is 1: wait for it or abort it first`,
        { group, limit: 1 },
      );
    }
    this.#admission.report(loads);
    if (state.outbox.size > 0) return takeAll(state);
    if (this.#isLost(state)) throw lostError(group);
    return this.#wait(group, state, signal);
  }

  /** @returns false for what is not known of, or is over */
  complete(request: string, stage: Stage, admission?: number): boolean {
    if (!this.#admission.complete(request, stage, admission)) return false;
    if (stage === 'request') {
      this.#withdraw(request);
      this.#retries.delete(request);
    }
    this.#dispatch();
    return true;
  }

  fail(request: string, error: Error, admission?: number): void {
    const failure = this.#admission.end(request, error, admission);
    if (failure) this.#ended([failure]);
  }

  cancel(request: string): void {
    this.fail(request, new DualPathError('CANCELLED', `request ${request} was cancelled`, { request }));
  }

  epoch(): number {
    return this.#admission.epoch();
  }

  /**
   * Declares an engine dead: raises the epoch and ends its requests with PEER_LOST. A fetch of a group that
   * has no engine left is rejected with PEER_LOST.
   *
   * @throws INVALID_ARGUMENT if there is no such engine
   */
  engineLost(engine: string): void {
    const failures = this.#admission.engineLost(engine);
    for (const [name, group] of this.#groups) {
      if (this.#isLost(group)) group.waiter?.reject(lostError(name));
    }
    this.#ended(failures);
  }

  /** Ends every request and every outstanding fetch with CLOSED; later events are refused or do nothing. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const group of this.#groups.values()) group.waiter?.reject(closedError());
    this.#ended(this.#admission.endAll(closedError()));
  }

  statistics(): AdmissionStatistics {
    return this.#admission.statistics();
  }

  /** Every engine with what is reserved of it now and its newest report. */
  engines(): IterableIterator<EngineState> {
    return this.#admission.engines();
  }

  #group(name: string): Group {
    const group = this.#groups.get(name);
    if (group) return group;
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `there is no group ${name}: name one of ${[...this.#groups.keys()].slice(0, 8).join(', ')}`,
      { group: name },
    );
  }

  #checkLoads(name: string, group: Group, loads: readonly EngineLoad[]): void {
    const stranger = loads.find(({ engine }) => !group.engines.includes(engine));
    if (!stranger) return;
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `engine ${stranger.engine} is not of group ${name}: report only ${group.engines.join(', ')}`,
      { group: name, engine: stranger.engine },
    );
  }

  #isLost(group: Group): boolean {
    return group.engines.every((engine) => this.#admission.engine(engine).lost);
  }

  #wait(name: string, group: Group, signal: AbortSignal | undefined): Promise<Assignment[]> {
    return new Promise((resolve, reject) => {
      const settle = (): void => {
        group.waiter = undefined;
        signal?.removeEventListener('abort', onAbort);
      };
      const waiter: Waiter = {
        resolve: (assignments) => {
          settle();
          resolve(assignments);
        },
        reject: (error) => {
          settle();
          reject(error);
        },
      };
      const onAbort = (): void => waiter.reject(cancelledError(name));
      signal?.addEventListener('abort', onAbort);
      group.waiter = waiter;
    });
  }

  #dispatch(): void {
    const filled = new Set<Group>();
    for (const assignment of this.#admission.admit()) {
      for (const engine of [assignment.prefillEngine, assignment.decodeEngine]) {
        const group = this.#group(this.#admission.engine(engine).capacity.group);
        group.outbox.set(assignment.request, assignment);
        filled.add(group);
      }
    }
    for (const group of filled) group.waiter?.resolve(takeAll(group));
  }

  #ended(failures: readonly RequestFailure[]): void {
    for (const { request } of failures) this.#withdraw(request);
    const over = failures.filter((failure) => !this.#tryAgain(failure));
    this.#dispatch();
    for (const failure of over) this.#onFailure(failure);
  }

  /** False when the request is over for good. */
  #tryAgain(failure: RequestFailure): boolean {
    const { request, assignment, error } = failure;
    const description = this.#retries.get(request);
    this.#retries.delete(request);
    if (description === undefined || assignment === undefined || this.#closed) return false;
    if (!isDualPathError(error, 'PEER_LOST') && !isDualPathError(error, 'RDMA_FAILED')) return false;
    const { side } = assignment;
    try {
      this.#admission.submit(
        { ...description, ...(side === 'split' ? {} : { avoidSide: side }) },
        performance.now() / 1000,
      );
    } catch {
      return false; // no engine is left, or the queue is full: the first error says why it ended
    }
    this.#onRetry!(failure);
    return true;
  }

  /** An assignment that nobody has fetched need not be fetched once its request has ended. */
  #withdraw(request: string): void {
    for (const group of this.#groups.values()) group.outbox.delete(request);
  }
}

function takeAll(group: Group): Assignment[] {
  const assignments = [...group.outbox.values()];
  group.outbox.clear();
  return assignments;
}

function closedError(): DualPathError {
  return new DualPathError('CLOSED', 'the scheduler has been closed: start another one');
}

function cancelledError(group: string): DualPathError {
  return new DualPathError('CANCELLED', `the fetch of group ${group} was aborted by its caller`, { group });
}

function lostError(group: string): DualPathError {
  return new DualPathError(
    'PEER_LOST',
    `group ${group} has no engine left: start a new scheduler with engines that live`,
    { group },
  );
}
