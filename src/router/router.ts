import { DualPathError } from '../errors/index.js';
import { Cluster, type ClusterOptions } from './cluster.js';
import { Instance, type InstanceOptions } from './instance.js';
import { routerLimits } from './limits.js';
import { checkInput, checkInstance, checkRouterOptions } from './check.js';
import type { RoutingPolicy } from './policy.js';
import type { ReportedBlocks } from './reported-blocks.js';
import { RoutedRequest, type RequestInput } from './request.js';

/** How an instance's waiting requests are taken. */
export type QueueOrder = 'fifo' | 'longest-hit';

export interface RouterOptions extends ClusterOptions {
  /** Uncached tokens that are with an engine at once; what is beyond waits, and can still move. Two prefill steps. */
  readonly dispatchedTokensMax: number;
  /** `longest-hit` as in the released code; there a request that has waited `ageBoundS` goes first. Default fifo. */
  readonly queueOrder?: QueueOrder | undefined;
  readonly ageBoundS?: number | undefined;
}

/** What the router decides, besides `submit`'s own result. Called during an event; must not call the router. */
export interface RouterDecisions {
  /** Hand the request to its instance now. */
  dispatch(request: RoutedRequest): void;
  /** The waiting request has been moved from one instance to another. */
  migrate?(request: RoutedRequest, from: Instance, to: Instance): void;
  /** The waiting request has nowhere to go: the last instance is gone. It has ended. */
  refuse?(request: RoutedRequest): void;
}

/**
 * The router as a state machine: events in, decisions out, no clock and no I/O. It keeps the ledger (what waits, what is
 * dispatched, what each instance's cache should hold) and asks its policy where requests go.
 *
 * A request is waiting, dispatched (late, as long as the engine's budget has room), decoding, ended. Prompts count as
 * cached by an instance from the moment their prefill is done, never before.
 */
export class Router {
  readonly cluster: Cluster;
  readonly policy: RoutingPolicy;
  readonly #options: RouterOptions;
  readonly #decisions: RouterDecisions;
  readonly #byName = new Map<string, Instance>();
  #added = 0;
  #requests = 0;
  #migrations = 0;
  readonly #move = (request: RoutedRequest, to: Instance): void => this.#migrate(request, to);

  /** @throws INVALID_ARGUMENT for impossible options */
  constructor(options: RouterOptions, policy: RoutingPolicy, decisions: RouterDecisions) {
    checkRouterOptions(options);
    this.#options = options;
    this.cluster = new Cluster(options);
    this.policy = policy;
    this.#decisions = decisions;
  }

  get migrations(): number {
    return this.#migrations;
  }

  /** Requests that have not ended. */
  get requests(): number {
    return this.#requests;
  }

  /** @throws INVALID_ARGUMENT for a name that is taken, CAPACITY_EXHAUSTED beyond the limit of instances */
  addInstance(options: InstanceOptions, nowS: number): Instance {
    this.#advance(nowS);
    checkInstance(options, this.#byName, this.#options.blockTokens);
    const instance = new Instance(options, this.#added++, this.#options.blockTokens);
    this.#byName.set(instance.name, instance);
    this.cluster.instances.push(instance);
    this.cluster.updateRoutable();
    this.policy.instanceAdded?.(instance, this.cluster);
    this.#evacuateUnroutable();
    return instance;
  }

  /** No new requests go there; those that wait are routed anew, those dispatched finish there. */
  drainInstance(name: string, nowS: number): Instance {
    const instance = this.#instance(name);
    this.#advance(nowS);
    if (!instance.draining) {
      instance.draining = true;
      this.cluster.updateRoutable();
      this.policy.instanceRemoved?.(instance, this.cluster);
      this.#evacuateUnroutable();
    }
    return instance;
  }

  /** The instance is gone. Requests dispatched to it are the caller's to report: finished, failed or cancelled. */
  removeInstance(name: string, nowS: number): Instance {
    const instance = this.drainInstance(name, nowS);
    this.#byName.delete(name);
    this.cluster.instances.splice(this.cluster.instances.indexOf(instance), 1);
    return instance;
  }

  /** A sick instance is passed over, without a change of the rings, and what waits there is routed anew. */
  setHealth(name: string, healthy: boolean, nowS: number): void {
    const instance = this.#instance(name);
    this.#advance(nowS);
    instance.healthy = healthy;
    this.cluster.updateRoutable();
    this.#evacuateUnroutable();
  }

  /** By the instance's own account, so many uncached tokens are pending; null takes back what it said. */
  reportLoad(name: string, pendingTokens: number | null, nowS: number): void {
    const instance = this.#instance(name);
    this.#advance(nowS);
    if (pendingTokens !== null && !(pendingTokens >= 0 && Number.isFinite(pendingTokens))) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `${name} reports ${pendingTokens} pending tokens: give a number from 0, or null where it is not known`,
        { instance: name, pending_tokens: String(pendingTokens) },
      );
    }
    const ownTokens = this.cluster.dispatchedS(instance) / this.#options.prefillSPerToken;
    instance.foreignTokens = pendingTokens === null ? 0 : Math.max(0, pendingTokens - ownTokens);
  }

  /** The instance gives an account of what it caches; null: none any more. */
  reportBlocks(name: string, blocks: ReportedBlocks | null): void {
    this.#instance(name).reported = blocks;
  }

  /** The instance has lost its cache. */
  cacheLost(name: string): void {
    this.#instance(name).cache.clear();
  }

  /**
   * Routes a request; it may have been dispatched when this returns. With `at` it goes to the instance of that name, as
   * long as that one is routable, and the policy is not asked.
   * @throws INVALID_ARGUMENT for an impossible prompt, CAPACITY_EXHAUSTED where there is no instance or no room
   */
  submit(input: RequestInput, nowS: number, at?: string): RoutedRequest {
    this.#advance(nowS);
    checkInput(input);
    const { cluster } = this;
    const first = cluster.routable[0];
    if (first === undefined || this.#requests >= routerLimits.requests) {
      throw new DualPathError(
        'CAPACITY_EXHAUSTED',
        first === undefined
          ? 'there is no instance to route to: add one'
          : `${this.#requests} requests are in the router, the limit is ${routerLimits.requests}: try again later`,
        { instances: cluster.instances.length, requests: this.#requests },
      );
    }
    const request = new RoutedRequest(input, this.#options.blockTokens, nowS, first);
    this.#requests++;
    const pinned = at === undefined ? undefined : this.#byName.get(at);
    this.#enqueue(request, pinned?.routable === true ? pinned : this.policy.route(request, cluster));
    this.policy.queued?.(request, cluster, this.#move);
    this.#dispatch(request.instance);
    return request;
  }

  /** The engine has computed the prompt: its blocks are cached there, and the next may be dispatched. */
  prefillDone(request: RoutedRequest, nowS: number): void {
    this.#require(request, 'dispatched');
    this.#advance(nowS);
    const { instance } = request;
    instance.cache.touch(request.keys, request.firstBlock, request.blocks);
    this.#leaveDispatched(request);
    request.state = 'decoding';
    instance.decodingRequests++;
    this.policy.prefilled?.(request, this.cluster, this.#move);
    this.#dispatch(instance);
  }

  /** The request is over; one that was dispatched has been prefilled, too. */
  finished(request: RoutedRequest, nowS: number): void {
    if (request.state === 'dispatched') this.prefillDone(request, nowS);
    this.#require(request, 'decoding');
    this.#advance(nowS);
    this.#end(request);
  }

  /** The request ended without a result. It may be submitted again, as a new one. */
  failed(request: RoutedRequest, nowS: number): void {
    this.#advance(nowS);
    this.#end(request);
  }

  /** The client is gone: the request leaves the ledger, wherever it is, once. False if it had ended. */
  cancelled(request: RoutedRequest, nowS: number): boolean {
    if (request.state === 'ended') return false;
    this.failed(request, nowS);
    return true;
  }

  #end(request: RoutedRequest): void {
    const { instance } = request;
    if (request.state === 'waiting') {
      instance.waiting.remove(request);
      instance.waitingTokens -= request.uncachedTokens;
    } else if (request.state === 'dispatched') {
      this.#leaveDispatched(request);
    } else {
      this.#require(request, 'decoding');
      instance.decodingRequests--;
    }
    instance.activeBlocks -= request.blocks;
    request.state = 'ended';
    this.#requests--;
    this.#dispatch(instance);
  }

  #enqueue(request: RoutedRequest, instance: Instance): void {
    request.instance = instance;
    this.#estimate(request);
    instance.waiting.push(request);
    instance.waitingTokens += request.uncachedTokens;
    instance.activeBlocks += request.blocks;
  }

  #estimate(request: RoutedRequest): void {
    request.hitBlocks = this.cluster.hits(request, request.instance);
    request.uncachedTokens = this.cluster.uncachedTokens(request, request.hitBlocks);
  }

  #leaveDispatched(request: RoutedRequest): void {
    const { instance } = request;
    const wasFirst = instance.dispatched.first === request;
    instance.dispatched.remove(request);
    instance.dispatchedTokens -= request.uncachedTokens;
    const next = instance.dispatched.first;
    if (!wasFirst || next === null) return;
    // The engine begins it now, with what is cached now.
    instance.startedS = this.cluster.nowS;
    instance.dispatchedTokens -= next.uncachedTokens;
    this.#estimate(next);
    instance.dispatchedTokens += next.uncachedTokens;
  }

  #dispatch(instance: Instance): void {
    for (;;) {
      const request = this.#nextOf(instance);
      if (request === null) return;
      const before = request.uncachedTokens;
      this.#estimate(request);
      instance.waitingTokens += request.uncachedTokens - before;
      const tokens = instance.dispatchedTokens + request.uncachedTokens;
      if (instance.dispatched.size > 0 && tokens > this.#options.dispatchedTokensMax) return;
      instance.waiting.remove(request);
      instance.waitingTokens -= request.uncachedTokens;
      if (instance.dispatched.size === 0) instance.startedS = this.cluster.nowS;
      instance.dispatched.push(request);
      instance.dispatchedTokens = tokens;
      request.state = 'dispatched';
      this.#decisions.dispatch(request);
    }
  }

  #nextOf(instance: Instance): RoutedRequest | null {
    const oldest = instance.waiting.first;
    const { queueOrder = 'fifo', ageBoundS = Infinity } = this.#options;
    if (oldest === null || queueOrder === 'fifo') return oldest;
    if (this.cluster.nowS - oldest.submittedS >= ageBoundS) return oldest;
    let best = oldest;
    for (let request = oldest.next; request !== null; request = request.next) {
      if (request.hitBlocks > best.hitBlocks) best = request;
    }
    return best;
  }

  #migrate(request: RoutedRequest, to: Instance): void {
    this.#require(request, 'waiting');
    const from = request.instance;
    from.waiting.remove(request);
    from.waitingTokens -= request.uncachedTokens;
    from.activeBlocks -= request.blocks;
    this.#enqueue(request, to);
    request.moves++;
    this.#migrations++;
    this.#decisions.migrate?.(request, from, to);
    this.#dispatch(to);
  }

  /** One instance more or less, sick or well, may change what all sick ones are good for. */
  #evacuateUnroutable(): void {
    for (const each of this.cluster.instances) if (!each.routable) this.#evacuate(each);
  }

  /** Routes anew what waits at an instance that may not be given requests. */
  #evacuate(instance: Instance): void {
    for (let request = instance.waiting.first; request !== null; request = instance.waiting.first) {
      if (this.cluster.routable.length > 0) {
        this.#migrate(request, this.policy.route(request, this.cluster));
      } else {
        this.#end(request);
        this.#decisions.refuse?.(request);
      }
    }
  }

  #instance(name: string): Instance {
    const instance = this.#byName.get(name);
    if (instance !== undefined) return instance;
    throw new DualPathError('INVALID_ARGUMENT', `there is no instance ${name}`, { instance: name });
  }

  #advance(nowS: number): void {
    if (!(nowS >= this.cluster.nowS)) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `an event at ${nowS} s after one at ${this.cluster.nowS} s: time must not go back`,
        { now_s: String(nowS), last_s: this.cluster.nowS },
      );
    }
    this.cluster.nowS = nowS;
  }

  #require(request: RoutedRequest, state: RoutedRequest['state']): void {
    if (request.state === state) return;
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `request ${request.id} is ${request.state}, but the event is for one that is ${state}`,
      { request: request.id, state: request.state },
    );
  }
}
