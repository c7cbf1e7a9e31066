import { ApiError, type KeyedPrompt } from '../openai/index.js';
import { policyEntries } from '../route-eval/index.js';
import { Router, type Instance, type LoadView, type RoutedRequest } from '../router/index.js';
import { Crowd } from './crowd.js';
import type { ProxyOptions } from './options.js';
import type { Target } from './target.js';

/** Who is told what the routers decide. Called after the event, never within it. */
export interface Passenger {
  dispatched(request: RoutedRequest, target: Target): void;
  /** Its instance is gone, and there is no other. */
  refused(): void;
}

/** The replicas that serve one model: a router of their own. */
export interface Group {
  readonly model: string;
  readonly router: Router;
}

const modelsMax = 256;

/**
 * A router for each model (base model or adapter, as replicas list them), over the targets that list it. A target that
 * serves several has an account with each; its load is their sum.
 */
export class Routing implements LoadView {
  readonly #options: ProxyOptions;
  readonly #groups = new Map<string, Group>();
  readonly #targets = new Map<string, Target>();
  readonly #passengers = new Crowd<Passenger>();
  readonly #decided: (() => void)[] = [];
  readonly #seed: number;
  #depth = 0;

  constructor(options: ProxyOptions) {
    this.#options = options;
    this.#seed = Buffer.from(options.secret).readUInt32LE(0);
  }

  get groups(): ReadonlyMap<string, Group> {
    return this.#groups;
  }

  get targets(): ReadonlyMap<string, Target> {
    return this.#targets;
  }

  nowS(): number {
    return performance.now() / 1000;
  }

  /** T_q of the target: by the accounts that all models have with it, and what others sent there. */
  queueS(instance: Instance, nowS: number): number {
    const target = this.#targets.get(instance.name);
    if (target === undefined) return 0;
    let sumS = target.foreignTokens * this.#options.prefillSPerToken;
    for (const { router, instance: account } of target.accounts.values()) {
      router.cluster.nowS = Math.max(router.cluster.nowS, nowS);
      sumS += router.cluster.ledgerQueueS(account);
    }
    return sumS;
  }

  /** What a target serves has become known, or has changed. */
  setModels(target: Target, models: readonly string[]): void {
    this.#targets.set(target.name, target);
    for (const model of [...target.accounts.keys()]) if (!models.includes(model)) this.#leave(target, model);
    for (const model of models) if (!target.accounts.has(model)) this.#join(target, model);
  }

  drain(target: Target): void {
    for (const { router } of target.accounts.values()) {
      this.#event(() => router.drainInstance(target.name, this.nowS()));
    }
  }

  remove(target: Target): void {
    for (const model of [...target.accounts.keys()]) this.#leave(target, model);
    this.#targets.delete(target.name);
  }

  setHealth(target: Target, healthy: boolean): void {
    for (const { router } of target.accounts.values()) {
      this.#event(() => router.setHealth(target.name, healthy, this.nowS()));
    }
  }

  /** @throws ApiError 404 for a model that no replica lists, 503 where no replica can serve it now */
  groupOf(model: string): Group {
    // SGLang names an adapter behind its base model; the key has it all the same.
    const group =
      this.#groups.get(model) ?? this.#groups.get(model.slice(0, Math.max(0, model.lastIndexOf(':'))));
    if (group !== undefined && group.router.cluster.routable.length > 0) return group;
    if (group === undefined && this.#groups.size > 0) {
      throw new ApiError(404, `no replica serves the model ${JSON.stringify(model.slice(0, 200))}`, {
        code: 'model_not_found',
        param: 'model',
      });
    }
    throw new ApiError(503, 'there is no replica to serve this: none is up, or all are draining', {
      code: 'no_replica',
      headers: { 'retry-after': '1' },
    });
  }

  submit(passenger: Passenger, group: Group, prompt: KeyedPrompt, at?: string): RoutedRequest {
    const id = this.#passengers.add(passenger);
    try {
      return this.#event(() => group.router.submit({ ...prompt, id, firstBlock: 0 }, this.nowS(), at));
    } catch (error) {
      this.#passengers.remove(id);
      throw error;
    }
  }

  prefillDone(group: Group, request: RoutedRequest): void {
    if (request.state === 'dispatched') this.#event(() => group.router.prefillDone(request, this.nowS()));
  }

  /** The request leaves the ledger; does nothing where it has. `finished` makes its prompt count as cached. */
  end(group: Group, request: RoutedRequest, finished: boolean): void {
    this.#passengers.remove(request.id);
    if (request.state === 'ended') return;
    this.#event(() => {
      if (finished && request.state !== 'waiting') group.router.finished(request, this.nowS());
      else group.router.cancelled(request, this.nowS());
    });
  }

  /** Uncached tokens that this router has put on a target and that are not computed yet. */
  pendingTokens(target: Target): number {
    let tokens = 0;
    for (const { instance } of target.accounts.values()) {
      tokens += instance.waitingTokens + instance.dispatchedTokens;
    }
    return tokens;
  }

  #join(target: Target, model: string): void {
    let group = this.#groups.get(model);
    if (group === undefined) {
      if (this.#groups.size >= modelsMax) return;
      group = { model, router: this.#newRouter() };
      this.#groups.set(model, group);
    }
    const { router } = group;
    const { cacheTokens, weight } = target.replica.config;
    const options = { name: target.name, weight, cacheTokens: cacheTokens ?? this.#options.cacheTokens };
    this.#event(() => {
      const instance = router.addInstance(options, this.nowS());
      target.accounts.set(model, { router, instance });
      if (target.isEjected) router.setHealth(target.name, false, this.nowS());
    });
  }

  #leave(target: Target, model: string): void {
    const account = target.accounts.get(model);
    if (account === undefined) return;
    target.accounts.delete(model);
    this.#event(() => account.router.removeInstance(target.name, this.nowS()));
    if (account.router.cluster.instances.length === 0 && account.router.requests === 0)
      this.#groups.delete(model);
  }

  #newRouter(): Router {
    const { blockTokens, prefillSPerToken, sloS, dispatchedTokensMax } = this.#options;
    const options = { blockTokens, prefillSPerToken, sloS, dispatchedTokensMax, loadView: this };
    const entry = policyEntries.find(({ name }) => name === this.#options.policy)!;
    return new Router(options, entry.make(this.#seed), {
      dispatch: (request) => {
        const passenger = this.#passengers.get(request.id);
        this.#decided.push(() => {
          const target = this.#targets.get(request.instance.name);
          if (request.state === 'ended') return;
          if (target === undefined) passenger?.refused();
          else passenger?.dispatched(request, target);
        });
      },
      refuse: (request) => {
        const passenger = this.#passengers.get(request.id);
        this.#passengers.remove(request.id);
        this.#decided.push(() => passenger?.refused());
      },
    });
  }

  /** Runs an event and then, when the outermost has ended, what the routers decided in it. */
  #event<T>(body: () => T): T {
    this.#depth++;
    try {
      return body();
    } finally {
      if (--this.#depth === 0) {
        // What is done about a decision may be an event with decisions of its own: those are behind it in the list.
        for (let decision = this.#decided.shift(); decision !== undefined; decision = this.#decided.shift()) {
          decision();
        }
      }
    }
  }
}
