import {
  hash32,
  Router,
  type Instance,
  type QueueOrder,
  type RoutedRequest,
  type RoutingPolicy,
} from '../router/index.js';
import { EventHeap } from './event-heap.js';
import { EmulatedReplica } from './replica.js';
import { StaleView, type StaleViewOptions } from './stale-view.js';
import type { RouteTrace } from './trace.js';

/** The cluster that is emulated. */
export interface ClusterSetting {
  readonly replicas: number;
  readonly cacheTokens: number;
  readonly prefillSPerToken: number;
  readonly sloS: number;
  readonly dispatchedTokensMax: number;
  readonly queueOrder: QueueOrder;
  readonly ageBoundS: number;
  /** Undefined: the router knows everything that it could. */
  readonly stale?: StaleViewOptions | undefined;
}

/** Replicas that come or go during a run. */
export interface Resize {
  readonly atS: number;
  readonly replicas: number;
}

/** What one run left, request by request. */
export interface SimulationTables {
  readonly ttftS: Float64Array;
  readonly hitTokens: Uint32Array;
  /** Pending uncached seconds of each replica, each second while requests came: population sigma over mean. */
  readonly variations: number[];
  readonly migrations: number;
  /** Prompts of which the router expected other hits than the replica had. */
  readonly wrongHits: number;
}

/** Block keys of a trace, two u32 each: the id, and a hash of it and of the copy of the trace. */
export function traceKeys(trace: RouteTrace, copy = 0): Uint32Array {
  const keys = new Uint32Array(2 * trace.ids.length);
  for (let i = 0; i < trace.ids.length; i++) {
    keys[2 * i] = hash32(trace.ids[i]!, copy, 0x3c6ef372);
    keys[2 * i + 1] = trace.ids[i]!;
  }
  return keys;
}

/** Virtual time: arrivals in, prefills out, the router between. No clock; equal inputs give equal outputs. */
export class Simulation {
  readonly #setting: ClusterSetting;
  readonly #router: Router;
  readonly #view: StaleView | undefined;
  readonly #replicas = new Map<Instance, EmulatedReplica>();
  readonly #byIndex: Instance[] = [];
  readonly #completions: EventHeap;
  readonly #ttftS: Float64Array;
  readonly #hitTokens: Uint32Array;
  readonly #variations: number[] = [];
  #wrongHits = 0;
  #nowS = 0;
  #names = 0;

  constructor(
    setting: ClusterSetting,
    policy: RoutingPolicy,
    requests: number,
    blockTokens: number,
    resizes = 0,
  ) {
    this.#setting = setting;
    this.#view = setting.stale === undefined ? undefined : new StaleView(setting.stale);
    this.#ttftS = new Float64Array(requests);
    this.#hitTokens = new Uint32Array(requests);
    this.#router = new Router({ ...setting, blockTokens, loadView: this.#view }, policy, {
      dispatch: (request) => this.#dispatched(request),
      migrate: (request, from, to) => this.#migrated(request, from, to),
    });
    this.#completions = new EventHeap(setting.replicas + resizes);
    for (let i = 0; i < setting.replicas; i++) this.#addReplica();
  }

  /** Submits `requests` one after the other at their times; resizes happen in between. */
  run(
    input: { trace: RouteTrace; keys: Uint32Array; timesS: Float64Array },
    resizes: readonly Resize[] = [],
  ): SimulationTables {
    const { trace, keys, timesS } = input;
    const meanTokens =
      trace.promptTokens.reduce((sum, tokens) => sum + tokens, 0) / trace.promptTokens.length;
    const leastS = meanTokens * this.#setting.prefillSPerToken;
    let resize = 0;
    let sampleS = 1;
    for (let i = 0; i < timesS.length; i++) {
      const atS = timesS[i]!;
      for (; resize < resizes.length && resizes[resize]!.atS <= atS; resize++) {
        this.#completeUntil(resizes[resize]!.atS);
        this.#resize(resizes[resize]!);
      }
      for (; sampleS <= atS; sampleS++) {
        this.#completeUntil(sampleS);
        this.#sample(leastS, sampleS);
      }
      this.#completeUntil(atS);
      const firstBlock = trace.starts[i]!;
      const request = this.#router.submit(
        {
          id: i,
          keys,
          firstBlock,
          blocks: trace.starts[i + 1]! - firstBlock,
          promptTokens: trace.promptTokens[i]!,
        },
        atS,
      );
      this.#nowS = atS;
      this.#view?.sent(request.instance, request.uncachedTokens * this.#setting.prefillSPerToken, atS);
      this.#reportLoads();
    }
    this.#completeUntil(Infinity);
    return {
      ttftS: this.#ttftS,
      hitTokens: this.#hitTokens,
      variations: this.#variations,
      migrations: this.#router.migrations,
      wrongHits: this.#wrongHits,
    };
  }

  #addReplica(): void {
    const { cacheTokens, prefillSPerToken } = this.#setting;
    const instance = this.#router.addInstance({ name: `replica-${this.#names++}`, cacheTokens }, this.#nowS);
    const { blockTokens } = this.#router.cluster;
    this.#replicas.set(instance, new EmulatedReplica({ blockTokens, cacheTokens, prefillSPerToken }));
    this.#byIndex[instance.index] = instance;
  }

  /** Replicas that go are the newest; what they have begun they finish. */
  #resize({ atS, replicas }: Resize): void {
    this.#nowS = Math.max(this.#nowS, atS);
    const { instances } = this.#router.cluster;
    while (instances.length < replicas) this.#addReplica();
    while (instances.length > replicas) this.#router.removeInstance(instances.at(-1)!.name, this.#nowS);
  }

  #dispatched(request: RoutedRequest): void {
    this.#replicas.get(request.instance)!.enqueue(request);
    this.#start(request.instance);
  }

  #migrated(request: RoutedRequest, from: Instance, to: Instance): void {
    const prefillS = request.uncachedTokens * this.#setting.prefillSPerToken;
    this.#view?.sent(from, -prefillS, this.#router.cluster.nowS);
    this.#view?.sent(to, prefillS, this.#router.cluster.nowS);
  }

  #start(instance: Instance): void {
    const replica = this.#replicas.get(instance)!;
    const durationS = replica.start();
    if (durationS !== null) this.#completions.push(this.#router.cluster.nowS + durationS, instance.index);
  }

  #completeUntil(untilS: number): void {
    while (this.#completions.nextTime <= untilS) {
      const atS = this.#completions.nextTime;
      if (atS === Infinity) return;
      const instance = this.#byIndex[this.#completions.pop()]!;
      const replica = this.#replicas.get(instance)!;
      const { hitBlocks } = replica;
      const request = replica.finish();
      if (request.hitBlocks !== hitBlocks) this.#wrongHits++;
      this.#hitTokens[request.id] = hitBlocks * this.#router.cluster.blockTokens;
      this.#ttftS[request.id] = atS - request.submittedS;
      this.#router.finished(request, atS);
      this.#start(instance);
      this.#reportLoads();
    }
  }

  #sample(leastS: number, atS: number): void {
    const { cluster } = this.#router;
    // Only loads are read, at a time of no event.
    const before = cluster.nowS;
    cluster.nowS = atS;
    let [sum, squares] = [0, 0];
    for (const instance of cluster.instances) {
      const pendingS = cluster.ledgerQueueS(instance);
      sum += pendingS;
      squares += pendingS * pendingS;
    }
    cluster.nowS = before;
    const count = cluster.instances.length;
    const mean = sum / count;
    if (mean < leastS) return;
    this.#variations.push(Math.sqrt(Math.max(0, squares / count - mean * mean)) / mean);
  }

  #reportLoads(): void {
    if (this.#view === undefined) return;
    const { cluster } = this.#router;
    for (const instance of cluster.instances) {
      this.#view.changed(instance, cluster.ledgerQueueS(instance), cluster.nowS);
    }
  }
}
