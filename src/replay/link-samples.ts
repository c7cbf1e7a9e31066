/** What each node's links carried over the time of a run. */
import type { Cluster } from './cluster.js';
import { clusterTraffic, type NodeTraffic } from './result.js';

export interface LinkSample {
  /** Since the first one. */
  readonly atS: number;
  readonly nodes: readonly NodeTraffic[];
}

const firstPeriodMs = 100;
/** When there are more, every second one goes and the period doubles. */
const maxSamples = 1000;

/** Looks at the links' counters every 100 ms, less often in long runs; memory is bounded. */
export class LinkSamples {
  readonly #cluster: Cluster;
  readonly #startedMs = performance.now();
  #samples: LinkSample[] = [];
  #periodMs = firstPeriodMs;
  #timer: NodeJS.Timeout;

  constructor(cluster: Cluster) {
    this.#cluster = cluster;
    this.#take();
    this.#timer = this.#start();
  }

  #start(): NodeJS.Timeout {
    return setInterval(() => this.#take(), this.#periodMs).unref();
  }

  #take(): void {
    const atS = (performance.now() - this.#startedMs) / 1000;
    this.#samples.push({ atS, nodes: clusterTraffic(this.#cluster) });
    if (this.#samples.length <= maxSamples) return;
    this.#samples = this.#samples.filter((_, index) => index % 2 === 0);
    this.#periodMs *= 2;
    clearInterval(this.#timer);
    this.#timer = this.#start();
  }

  /** Ends the sampling with a last look, also where a run was too short for a second one. */
  stop(): readonly LinkSample[] {
    clearInterval(this.#timer);
    this.#take();
    clearInterval(this.#timer); // a last look may have set another one
    return this.#samples;
  }
}
