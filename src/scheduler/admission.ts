import { DualPathError } from '../errors/index.js';
import { Ledger, type EngineState } from './ledger.js';
import { checkRequest, needsOf, prefillHbmBlocks, whyNever, type Needs } from './needs.js';
import { checkOptions, type AdmissionOptions } from './options.js';
import { Placement, type Choice, type WaitCause } from './placement.js';
import {
  stages,
  type Assignment,
  type EngineLoad,
  type EngineRole,
  type RequestDescription,
  type RequestFailure,
  type Stage,
} from './types.js';
import { WaitingQueue } from './waiting-queue.js';

/** Counts since the start, and what there is now. */
export interface AdmissionStatistics {
  readonly submitted: number;
  readonly admitted: number;
  readonly completed: number;
  readonly failed: number;
  /** Reports of stages or ends for what has ended, was never admitted, or belongs to another epoch. */
  readonly ignoredReports: number;
  /** Engine loads that were not newer than the last. */
  readonly staleLoads: number;
  /** How often a head of the queue was found to have to wait, by cause. */
  readonly headWaits: Readonly<Record<WaitCause, number>>;
  readonly prefillReadBlocks: number;
  readonly decodeReadBlocks: number;
  readonly waiting: number;
  readonly running: number;
}

interface Running {
  readonly description: RequestDescription;
  readonly assignment: Assignment;
  readonly done: Set<Stage>;
}

/**
 * The central request scheduler as a state machine: events go in (`submit`, `complete`, `end`, `engineLost`,
 * `report`), `admit` says what may start. It has no clock, no I/O and no timers, and equal seeds and events
 * give equal assignments.
 *
 * It simplifies DualPath's inter-engine scheduling (Algorithm 1 and the DE's two phases) on purpose:
 *
 * - A request is admitted whole: PE, DE, read side and every block it will ever hold, or nothing. So an
 *   admitted request never waits for memory and requests cannot deadlock.
 * - PE: least seconds queued on the node's storage link, then least unfinished tokens, then by seeded chance.
 *   The paper sorts PEs into classes by the thresholds alpha (read queue) and beta (tokens).
 * - DE: fits HBM and buffer, least unfinished tokens, then by seeded chance. The paper first shares requests
 *   out to DE groups, then balances within 1.05 of the mean.
 * - Load is the central ledger (reserved minus completed), exact at every decision. Engines' own reports are
 *   kept for observation, so a stale report cannot send every request to one engine.
 * - The waiting queue is strictly FIFO: a head that does not fit now waits, and nothing overtakes it. That
 *   costs some utilisation and in return no large request starves.
 */
export class Admission {
  readonly #options: AdmissionOptions;
  readonly #ledger: Ledger;
  readonly #waiting: WaitingQueue;
  readonly #running = new Map<string, Running>();
  readonly #placement: Placement;
  #epoch = 1;
  /** Nothing was given back since the head was found not to fit. */
  #headBlocked = false;
  readonly #headWaits: Record<WaitCause, number> = { 'prefill-room': 0, 'decode-hbm': 0, 'decode-buffer': 0 };
  readonly #counts = {
    submitted: 0,
    admitted: 0,
    completed: 0,
    failed: 0,
    ignoredReports: 0,
    staleLoads: 0,
    prefillReadBlocks: 0,
    decodeReadBlocks: 0,
  };

  /** @throws INVALID_ARGUMENT */
  constructor(options: AdmissionOptions) {
    checkOptions(options);
    this.#options = { ...options };
    this.#ledger = new Ledger(options.engines);
    this.#waiting = new WaitingQueue(options.maxWaiting);
    this.#placement = new Placement(options, this.#ledger);
  }

  epoch(): number {
    return this.#epoch;
  }

  statistics(): AdmissionStatistics {
    return {
      ...this.#counts,
      headWaits: { ...this.#headWaits },
      waiting: this.#waiting.size,
      running: this.#running.size,
    };
  }

  /** Every engine with what is reserved of it now, in the order given at the start, lost ones included. */
  engines(): IterableIterator<EngineState> {
    return this.#ledger.engines();
  }

  /** @throws INVALID_ARGUMENT if there is no such engine */
  engine(name: string): EngineState {
    return this.#ledger.engine(name);
  }

  /**
   * Puts a request at the end of the waiting queue.
   *
   * @throws INVALID_ARGUMENT, REQUEST_TOO_LARGE, CAPACITY_EXHAUSTED, PEER_LOST; nothing has changed then
   */
  submit(description: RequestDescription): void {
    checkRequest(description, this.#options.blockTokens);
    const { request } = description;
    if (this.#waiting.has(request) || this.#running.has(request)) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `request ${request} has not ended yet: give every request its own name`,
        { request },
      );
    }
    const never = this.#whyNever(description);
    if (never) throw never;
    this.#waiting.push({ ...description });
    this.#counts.submitted++;
  }

  /** Admits from the head of the waiting queue for as long as the head fits; in FIFO order. */
  admit(): Assignment[] {
    const assignments: Assignment[] = [];
    while (!this.#headBlocked) {
      const head = this.#waiting.head();
      if (!head) break;
      const needs = needsOf(head, this.#options);
      const choice = this.#placement.choose(needs);
      if (typeof choice === 'string') {
        this.#headBlocked = true;
        this.#headWaits[choice]++;
        break;
      }
      assignments.push(this.#start(head, needs, choice));
    }
    return assignments;
  }

  /**
   * Takes note of a finished stage and gives back what it held. False, and counted, if the report is for no
   * running request, for another epoch than the assignment's, or was made before.
   */
  complete(request: string, stage: Stage, epoch?: number): boolean {
    if (!Object.hasOwn(stages, stage)) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `stage ${String(stage)} of request ${request} does not exist: use ${Object.keys(stages).join(', ')}`,
        { request, stage: String(stage) },
      );
    }
    const running = this.#find(request, epoch);
    if (!running || running.done.has(stage)) {
      this.#counts.ignoredReports++;
      return false;
    }
    if (stage === 'request') {
      this.#giveBackAll(running);
      this.#counts.completed++;
    } else {
      this.#giveBack(running, stage);
    }
    return true;
  }

  /**
   * Ends a waiting or running request with an error and gives back all it holds. Undefined, and counted, if
   * it has ended already or runs under another epoch.
   *
   * The account is settled at once, though engines may still have operations in flight on the request's
   * slots: their pools hand a slot out again only when those have ended, so a successor may have to wait a
   * little for slots that are its own on the account.
   */
  end(request: string, error: Error, epoch?: number): RequestFailure | undefined {
    const running = this.#find(request, epoch);
    if (running) {
      this.#giveBackAll(running);
    } else if (epoch !== undefined || !this.#waiting.remove(request)) {
      this.#counts.ignoredReports++;
      return undefined;
    }
    this.#headBlocked = false;
    this.#counts.failed++;
    return { request, assignment: running?.assignment, error };
  }

  /** Ends every request, running ones first. */
  endAll(error: Error): RequestFailure[] {
    const requests = [...this.#running.keys(), ...[...this.#waiting].map(({ request }) => request)];
    return requests.flatMap((request) => this.end(request, error) ?? []);
  }

  /**
   * Takes an engine out for good, raises the epoch and ends the requests that still need it, with PEER_LOST:
   * a PE's requests up to stage 'prefill', a DE's until they end. Waiting requests that only a lost engine
   * could have held end too. An engine lost before is nothing new.
   *
   * @throws INVALID_ARGUMENT if there is no such engine
   */
  engineLost(engine: string): RequestFailure[] {
    if (this.#ledger.engine(engine).lost) return [];
    this.#ledger.lose(engine);
    this.#epoch++;
    this.#headBlocked = false;
    const failures: RequestFailure[] = [];
    const lose = (request: string, why: string): void => {
      const message = `engine ${engine} was lost, ${why}`;
      const failure = this.end(request, new DualPathError('PEER_LOST', message, { request, engine }));
      if (failure) failures.push(failure);
    };
    for (const { assignment, done } of [...this.#running.values()]) {
      const { request, prefillEngine, decodeEngine } = assignment;
      if (decodeEngine !== engine && (prefillEngine !== engine || done.has('prefill'))) continue;
      lose(request, `and request ${request} was running there: submit it again`);
    }
    for (const description of [...this.#waiting]) {
      const never = this.#whyNever(description);
      if (never) lose(description.request, `so ${never.message}`);
    }
    return failures;
  }

  /** Keeps engines' own loads for observation; a report not newer than the engine's last is counted. */
  report(loads: readonly EngineLoad[]): void {
    for (const load of loads) {
      if (!this.#ledger.report(load)) this.#counts.staleLoads++;
    }
  }

  #whyNever(description: RequestDescription): DualPathError | undefined {
    const { policy } = this.#options;
    const live = (role: EngineRole): readonly EngineState[] => this.#ledger.live(role);
    return whyNever(description.request, needsOf(description, this.#options), policy, live);
  }

  #find(request: string, epoch: number | undefined): Running | undefined {
    const running = this.#running.get(request);
    return epoch === undefined || running?.assignment.epoch === epoch ? running : undefined;
  }

  #start(description: RequestDescription, needs: Needs, { prefill, decode, plan }: Choice): Assignment {
    const { request, promptTokens, maxNewTokens } = description;
    const assignment: Assignment = {
      request,
      epoch: this.#epoch,
      prefillEngine: prefill.capacity.engine,
      decodeEngine: decode.capacity.engine,
      ...plan,
      promptBlocks: needs.promptBlocks,
      prefillHbmBlocks: prefillHbmBlocks(prefill, needs),
      decodeHbmBlocks: needs.decodeHbmBlocks,
    };
    this.#ledger.take(assignment.prefillEngine, {
      bufferBlocks: plan.prefillReadBlocks,
      hbmBlocks: assignment.prefillHbmBlocks,
      readBlocks: plan.prefillReadBlocks,
      requests: 1,
      tokens: promptTokens,
    });
    this.#ledger.take(assignment.decodeEngine, {
      bufferBlocks: needs.decodeBufferBlocks,
      hbmBlocks: needs.decodeHbmBlocks,
      readBlocks: plan.decodeReadBlocks,
      requests: 1,
      tokens: promptTokens + maxNewTokens,
    });
    this.#waiting.remove(request);
    this.#running.set(request, { description, assignment, done: new Set() });
    this.#counts.admitted++;
    this.#counts.prefillReadBlocks += plan.prefillReadBlocks;
    this.#counts.decodeReadBlocks += plan.decodeReadBlocks;
    return assignment;
  }

  #giveBackAll(running: Running): void {
    for (const stage of Object.keys(stages) as Stage[]) {
      if (!running.done.has(stage)) this.#giveBack(running, stage);
    }
    this.#running.delete(running.assignment.request);
  }

  #giveBack({ description, assignment, done }: Running, stage: Stage): void {
    const { prefillEngine, decodeEngine, prefillReadBlocks, decodeReadBlocks } = assignment;
    done.add(stage);
    switch (stage) {
      case 'prefill-read':
        this.#ledger.give(prefillEngine, { readBlocks: prefillReadBlocks });
        return; // frees no room, so the head still does not fit
      case 'decode-read':
        this.#ledger.give(decodeEngine, { readBlocks: decodeReadBlocks });
        return;
      case 'prefill':
        this.#ledger.give(prefillEngine, {
          bufferBlocks: prefillReadBlocks,
          hbmBlocks: assignment.prefillHbmBlocks,
          requests: 1,
          tokens: description.promptTokens,
        });
        break;
      case 'decode-buffer':
        this.#ledger.give(decodeEngine, { bufferBlocks: assignment.promptBlocks });
        break;
      case 'request':
        this.#ledger.give(decodeEngine, {
          bufferBlocks: this.#options.decodeSpareBlocks,
          hbmBlocks: assignment.decodeHbmBlocks,
          requests: 1,
          tokens: description.promptTokens + description.maxNewTokens,
        });
        break;
    }
    this.#headBlocked = false;
  }
}
