import type { ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import {
  ApiError,
  withMember,
  withoutMember,
  type Api,
  type CanonicalPrompt,
  type KeyedPrompt,
} from '../openai/index.js';
import { roundedMs, type Log } from '../log/index.js';
import type { Instance, RoutedRequest } from '../router/index.js';
import { Attempt, type AttemptOwner } from './attempt.js';
import type { ProxyMetrics } from './metrics.js';
import { sendError } from './send-error.js';
import type { RetryBudget } from './retry-budget.js';
import type { Group, Passenger, Routing } from './routing.js';
import type { ResponsePlaces } from './sticky.js';
import type { EjectReason, Target } from './target.js';

/** What all flights share. */
export interface FlightDesk {
  readonly routing: Routing;
  readonly budget: RetryBudget;
  readonly places: ResponsePlaces;
  readonly metrics: ProxyMetrics;
  readonly prefillSPerToken: number;
  readonly log: Log | null;
  eject(target: Target, reason: EjectReason): void;
  landed(flight: Flight): void;
}

export interface FlightPlan {
  /** The client's, or made up. */
  readonly requestId: string;
  /** Of its `traceparent`. */
  readonly traceId: string | undefined;
  readonly api: Api;
  readonly path: string;
  /** For the replica: names and values in turn. */
  readonly headers: string[];
  readonly body: Buffer;
  readonly prompt: Omit<CanonicalPrompt, 'content'>;
  readonly keyed: KeyedPrompt;
  readonly tenant: string;
  readonly group: Group;
  readonly deadlineMs: number;
}

const retryable: ReadonlySet<number> = new Set([429, 500, 502, 503, 504]);

/** A large body is written piece by piece, as the connection takes it: streams of others go in between. */
const pieceBytes = 128 * 1024;

/** Copies: the body's memory is another's when the flight is over, whatever the connection has not written by then. */
function* piecesOf(flight: Flight, body: Buffer): Generator<Buffer> {
  for (let at = 0; at < body.length && !flight.over; at += pieceBytes) {
    yield Buffer.from(body.subarray(at, at + pieceBytes));
  }
}

/** A request to a model, from its body to its end: in the ledger, at one replica or, once, at a second. */
export class Flight implements AttemptOwner, Passenger {
  /** Of the proxy's list of flights. */
  ticket = -1;
  readonly plan: FlightPlan;
  attempt: Attempt | null = null;
  over = false;
  readonly #desk: FlightDesk;
  readonly #response: ServerResponse;
  readonly #startedMs = performance.now();
  #request: RoutedRequest | null = null;
  #tries = 0;
  #dispatchedMs = 0;
  /** Hits that the router counted on when it dispatched. */
  #predictedHitTokens = 0;
  #prefilled = false;
  /** Of the newest try. */
  #target: Target | null = null;
  #ttftMs = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(desk: FlightDesk, plan: FlightPlan, response: ServerResponse) {
    this.#desk = desk;
    this.plan = plan;
    this.#response = response;
    response.once('close', () => this.#clientLeft());
  }

  get requestId(): string {
    return this.plan.requestId;
  }

  get isWaiting(): boolean {
    return !this.over && this.attempt === null;
  }

  start(): void {
    const { prompt, tenant, group, keyed } = this.plan;
    const previous = prompt.previousResponseId;
    const at = previous === null ? undefined : this.#desk.places.find(tenant, previous);
    this.#desk.budget.earn();
    this.#submit(group, keyed, at);
  }

  dispatched(request: RoutedRequest, target: Target): void {
    this.#request = request;
    if (this.over) {
      this.#desk.routing.end(this.plan.group, request, false);
      return;
    }
    const { cluster } = this.plan.group.router;
    this.#tries++;
    this.#prefilled = false;
    this.#dispatchedMs = performance.now();
    this.#predictedHitTokens = request.hitBlocks * cluster.blockTokens;
    const { headers, body, path, api } = this.#shapeFor(target);
    const attempt = new Attempt(this, target, this.#response, api === 'responses');
    this.attempt = attempt;
    this.#target = target;
    // Without a stream the first byte is the last: that the prompt is computed can only be expected.
    if (!this.plan.prompt.stream) {
      const expectedMs = 1000 * cluster.dispatchedS(request.instance);
      this.#timer = setTimeout(() => this.#expectPrefilled(request), Math.ceil(expectedMs));
    }
    const isLarge = body.length > 2 * pieceBytes;
    if (isLarge) headers.push('content-length', String(body.length));
    target.replica.pool.dispatch(
      { path, method: 'POST', headers, body: isLarge ? Readable.from(piecesOf(this, body)) : body },
      attempt,
    );
  }

  refused(): void {
    this.#fail(new ApiError(503, 'every replica that could serve this is gone', { code: 'no_replica' }));
  }

  accepts(attempt: Attempt): boolean {
    const { target, status } = attempt;
    if (!retryable.has(status)) return true;
    if (status !== 429 && target.failed()) this.#desk.eject(target, 'failing');
    if (this.over || attempt.over || !this.#mayRetry()) return !attempt.over;
    attempt.abort();
    this.#retry(`status_${status}`);
    return false;
  }

  begins(attempt: Attempt): void {
    this.#ttftMs = performance.now() - this.#startedMs;
    if (attempt.status < 400) {
      if (this.plan.prompt.stream) this.#desk.metrics.ttft.observe(this.#ttftMs / 1000);
      this.#prefillDone(attempt);
    }
  }

  ended(attempt: Attempt): void {
    const { target, status, watch } = attempt;
    const facts = watch?.end();
    const failed = status >= 500 || facts?.failed === true;
    if (!failed) {
      target.succeeded();
      if (facts !== undefined && status < 400) this.#learn(facts.cachedTokens, facts.responseId, target);
    } else if (status < 500) {
      this.#desk.metrics.streamErrors.inc();
      if (target.failed()) this.#desk.eject(target, 'failing');
    }
    this.#land(failed ? 'failed' : status < 400 ? 'ok' : 'rejected', status < 400 && !failed);
  }

  broke(attempt: Attempt, error: Error): void {
    const { target, committed } = attempt;
    const { code } = error as NodeJS.ErrnoException;
    const isDown = code === 'ECONNREFUSED' || code === 'EHOSTUNREACH' || code === 'UND_ERR_CONNECT_TIMEOUT';
    if (isDown) this.#desk.eject(target, 'down');
    else if (target.failed()) this.#desk.eject(target, 'failing');
    if (this.over) return;
    if (committed) {
      // A clean end would look like a whole answer.
      this.#response.destroy();
      this.#land('broken', false);
    } else if (this.#mayRetry()) this.#retry(isDown ? 'connect' : 'broken');
    else {
      this.#fail(
        new ApiError(
          502,
          `the replica ${target.name} broke off before it answered (${code ?? error.message})`,
          {
            code: 'replica_failed',
          },
        ),
      );
    }
  }

  /**
   * The target seems to hang since `silentMs`: what has no byte yet goes elsewhere, if somebody is well there. Else it may be
   * only slower than it was expected to be, and is given as long as a stream that stops; what streams has that time-out anyway.
   */
  targetHangs(silentMs: number, giveUpMs: number): void {
    const { attempt } = this;
    if (this.over || attempt === null || attempt.over || attempt.committed) return;
    if (this.#elsewhere()?.healthy === true && this.#mayRetry()) {
      attempt.abort();
      this.#retry('hung');
    } else if (silentMs > giveUpMs) {
      attempt.abort();
      this.#fail(new ApiError(504, `the replica ${attempt.target.name} hangs`, { code: 'replica_hangs' }));
    }
  }

  /** Looks at the clock. */
  tick(nowMs: number, streamIdleMs: number, clientStallMs: number): void {
    const { attempt } = this;
    if (this.over) return;
    if (nowMs > this.plan.deadlineMs) this.#timedOut('the deadline of the request has passed', 'deadline');
    else if (attempt === null) return;
    else if (attempt.pausedMs > 0) {
      if (nowMs - attempt.pausedMs > clientStallMs) this.#response.destroy();
    } else if (attempt.committed && nowMs - attempt.lastByteMs > streamIdleMs) {
      if (attempt.target.failed()) this.#desk.eject(attempt.target, 'failing');
      this.#timedOut('the replica has stopped in the midst of its answer', 'stream_idle');
    }
  }

  /** The router closes. */
  abandon(): void {
    this.#timedOut('the router is shutting down', 'shutdown');
  }

  #timedOut(message: string, code: string): void {
    const committed = this.attempt?.committed === true;
    this.attempt?.abort();
    if (committed) {
      this.#response.destroy();
      this.#land('timeout', false);
    } else this.#fail(new ApiError(504, message, { code }), 'timeout');
  }

  #clientLeft(): void {
    clearTimeout(this.#timer);
    if (this.over) return;
    this.attempt?.abort();
    this.#land('client_left', false);
  }

  #mayRetry(): boolean {
    return (
      this.#tries < 2 &&
      performance.now() < this.plan.deadlineMs &&
      this.plan.group.router.cluster.routable.length > 0 &&
      this.#desk.budget.spend()
    );
  }

  #retry(reason: string): void {
    const { group, keyed } = this.plan;
    const failed = this.#request!;
    const elsewhere = this.#elsewhere();
    clearTimeout(this.#timer);
    this.attempt = null;
    this.#desk.metrics.retries.inc({ reason });
    this.#desk.log?.warn({ ...this.#facts(), reason }, 'request tried again');
    this.#desk.routing.end(group, failed, false);
    this.#submit(group, keyed, elsewhere?.name);
  }

  /** The request's other candidate, or whoever else takes requests. */
  #elsewhere(): Instance | undefined {
    const { primary, secondary, instance } = this.#request!;
    const other = instance === primary ? secondary : primary;
    if (other !== null && other !== instance && other.healthy) return other;
    const { routable } = this.plan.group.router.cluster;
    const others = routable.filter((each) => each !== instance);
    return others.find(({ healthy }) => healthy) ?? other ?? others[0];
  }

  #submit(group: Group, keyed: KeyedPrompt, at: string | undefined): void {
    const request = this.#desk.routing.submit(this, group, keyed, at);
    if (!this.over) this.#request = request;
  }

  #expectPrefilled(request: RoutedRequest): void {
    if (!this.over && request === this.#request) this.#desk.routing.prefillDone(this.plan.group, request);
  }

  #prefillDone({ target }: Attempt): void {
    if (this.#prefilled || this.#request === null) return;
    this.#prefilled = true;
    const { instance, uncachedTokens, state } = this.#request;
    if (this.plan.prompt.stream && state === 'dispatched') {
      // From when the one before it was done, if it waited for that.
      const tookS = Math.min(
        (performance.now() - this.#dispatchedMs) / 1000,
        Math.max(0, this.#desk.routing.nowS() - instance.startedS),
      );
      target.observe(tookS, uncachedTokens * this.#desk.prefillSPerToken);
    }
    this.#desk.routing.prefillDone(this.plan.group, this.#request);
  }

  #learn(cachedTokens: number | null, responseId: string | null, target: Target): void {
    if (cachedTokens !== null) this.#desk.metrics.observeHits(this.#predictedHitTokens, cachedTokens);
    if (responseId !== null) this.#desk.places.remember(this.plan.tenant, responseId, target.name);
  }

  #fail(error: ApiError, outcome = 'failed'): void {
    this.#land(outcome, false);
    sendError(this.#response, error);
  }

  #land(outcome: string, finished: boolean): void {
    if (this.over) return;
    this.over = true;
    clearTimeout(this.#timer);
    if (this.#request !== null) this.#desk.routing.end(this.plan.group, this.#request, finished);
    this.#desk.metrics.requests.inc({ api: this.plan.api, outcome });
    this.#desk.landed(this);
    const failed = outcome === 'failed' || outcome === 'broken' || outcome === 'timeout';
    this.#desk.log?.[failed ? 'warn' : 'info']({ ...this.#facts(), outcome }, 'request ended');
  }

  /** What a line of the log says of it. */
  #facts(): object {
    const { requestId: request_id, traceId, api, tenant, prompt, keyed } = this.plan;
    return {
      ...{ request_id, ...(traceId === undefined ? {} : { trace_id: traceId }), api, model: prompt.model },
      ...(tenant === '' ? {} : { tenant }),
      ...{
        prompt_tokens: keyed.promptTokens,
        predicted_hit_tokens: this.#predictedHitTokens,
        tries: this.#tries,
      },
      ...(this.#target === null ? {} : { replica: this.#target.name, status: this.attempt?.status ?? 0 }),
      ...(this.#ttftMs === 0 ? {} : { ttft_ms: roundedMs(this.#ttftMs) }),
      duration_ms: roundedMs(performance.now() - this.#startedMs),
    };
  }

  #shapeFor(target: Target): { headers: string[]; body: Buffer; path: string; api: Api } {
    const { path, api, prompt } = this.plan;
    let { body } = this.plan;
    const headers = [...this.plan.headers];
    if (prompt.namesRank) body = withoutMember(withoutMember(body, 'data_parallel_rank'), 'routed_dp_rank');
    if (target.rank !== null) {
      if (target.replica.config.engine === 'sglang')
        body = withMember(body, 'data_parallel_rank', target.rank);
      else headers.push('x-data-parallel-rank', String(target.rank));
    }
    return { headers, body, path, api };
  }
}
