import type { Cluster } from '../cluster.js';
import type { Instance } from '../instance.js';
import type { RoutingPolicy } from '../policy.js';
import { SeededRandom } from '../../scheduler/index.js';
import type { RoutedRequest } from '../request.js';
import { leastBy } from './simple.js';

export interface PrebleOptions {
  /** Part of the prompt above which a match is exploited. */
  readonly exploitAbove: number;
  /** Seconds of history that count as load. */
  readonly windowS: number;
  /** Most over least load from which the most loaded instance's exploiting requests go to the least loaded one ... */
  readonly balanceAbove: number;
  /** ... after so many requests for each instance. */
  readonly warmUpRequests: number;
}

/** What one instance was given within the window. */
interface History {
  prefillS: number;
  tokens: number;
  hitTokens: number;
}

interface Entry {
  readonly atS: number;
  readonly history: History;
  readonly prefillS: number;
  readonly tokens: number;
  readonly hitTokens: number;
}

/**
 * Preble's E2 (ICLR 2025): exploit where more than half of the prompt is cached, on the least loaded of the instances
 * that hold most; else explore, by the least of the load of the last three minutes, the cost of computing again what the
 * prompt evicts, and its own prefill. Every cost is in seconds of prefill.
 */
export class PreblePolicy implements RoutingPolicy {
  readonly name = 'preble';
  readonly #random: SeededRandom;
  readonly #options: PrebleOptions;
  readonly #histories = new Map<Instance, History>();
  #entries: Entry[] = [];
  #first = 0;
  #routed = 0;

  constructor(
    seed: number,
    options: PrebleOptions = { exploitAbove: 0.5, windowS: 180, balanceAbove: 1.5, warmUpRequests: 50 },
  ) {
    this.#random = new SeededRandom(seed);
    this.#options = options;
  }

  route(request: RoutedRequest, cluster: Cluster): Instance {
    this.#expire(cluster.nowS - this.#options.windowS);
    const instance = this.#choose(request, cluster);
    const hitBlocks = cluster.hits(request, instance);
    const history = this.#historyOf(instance);
    const entry = {
      atS: cluster.nowS,
      history,
      prefillS: cluster.computeS(request, hitBlocks),
      tokens: request.promptTokens,
      hitTokens: hitBlocks * cluster.blockTokens,
    };
    history.prefillS += entry.prefillS;
    history.tokens += entry.tokens;
    history.hitTokens += entry.hitTokens;
    this.#entries.push(entry);
    this.#routed++;
    return instance;
  }

  instanceRemoved(instance: Instance): void {
    this.#histories.delete(instance);
  }

  #choose(request: RoutedRequest, cluster: Cluster): Instance {
    const { routable } = cluster;
    let most = 0;
    for (const instance of routable) most = Math.max(most, cluster.hits(request, instance));
    if (most * cluster.blockTokens <= this.#options.exploitAbove * request.promptTokens) {
      return leastBy(routable, this.#random, (instance) => this.#exploreS(request, instance, cluster));
    }
    const load = (instance: Instance): number => this.#historyOf(instance).prefillS;
    const exploited = leastBy(routable, this.#random, (instance) =>
      cluster.hits(request, instance) < most ? Infinity : load(instance),
    );
    if (this.#routed < this.#options.warmUpRequests * routable.length) return exploited;
    const lightest = leastBy(routable, this.#random, load);
    const heaviestS = routable.reduce((s, instance) => Math.max(s, load(instance)), 0);
    const unbalanced = heaviestS > this.#options.balanceAbove * load(lightest);
    return unbalanced && load(exploited) === heaviestS ? lightest : exploited;
  }

  #exploreS(request: RoutedRequest, instance: Instance, cluster: Cluster): number {
    const history = this.#historyOf(instance);
    const hitBlocks = cluster.hits(request, instance);
    const room = instance.cache.capacityBlocks - instance.cache.size;
    const evictedBlocks = Math.max(0, request.blocks - hitBlocks - room);
    // What is evicted is needed again as often as the instance's cached tokens were hit.
    const reuse = history.tokens === 0 ? 0 : history.hitTokens / history.tokens;
    const evictionS = evictedBlocks * cluster.blockTokens * cluster.prefillSPerToken * reuse;
    return history.prefillS + evictionS + cluster.computeS(request, hitBlocks);
  }

  #historyOf(instance: Instance): History {
    let history = this.#histories.get(instance);
    if (history === undefined) {
      history = { prefillS: 0, tokens: 0, hitTokens: 0 };
      this.#histories.set(instance, history);
    }
    return history;
  }

  #expire(untilS: number): void {
    for (; this.#first < this.#entries.length; this.#first++) {
      const { atS, history, prefillS, tokens, hitTokens } = this.#entries[this.#first]!;
      if (atS >= untilS) break;
      history.prefillS -= prefillS;
      history.tokens -= tokens;
      history.hitTokens -= hitTokens;
    }
    if (this.#first < 1024 || 2 * this.#first < this.#entries.length) return;
    this.#entries = this.#entries.slice(this.#first);
    this.#first = 0;
  }
}
