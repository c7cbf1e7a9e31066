import { DualPathError } from '../errors/index.js';
import { KvEvents } from './kv-events.js';
import { Monitor, type MonitorDesk } from './monitor.js';
import { checkReplica, type ProxyOptions, type ProxyTimes, type ReplicaConfig } from './options.js';
import type { ProxyMetrics } from './metrics.js';
import { Replica } from './replica.js';
import { Routing } from './routing.js';
import type { EjectReason, Ejection, Target } from './target.js';

export interface ReplicaStatus {
  readonly name: string;
  readonly url: string;
  readonly models: readonly string[] | null;
  readonly draining: boolean;
  readonly targets: readonly {
    readonly name: string;
    readonly ejected: EjectReason | null;
    readonly inFlight: number;
    readonly waiting: number;
    readonly pendingTokens: number;
  }[];
}

/** How often targets are looked at, in ms. */
const watchMs = 100;
/** Smoothing of the mean request, which only weighs what others sent. */
const meanWeight = 0.02;

/** The replicas: which there are, what they serve, how they are. */
export class Fleet implements MonitorDesk {
  readonly routing: Routing;
  readonly times: ProxyTimes;
  readonly prefillSPerToken: number;
  readonly monitor = new Monitor(this);
  meanTokens = 1000;
  readonly #options: ProxyOptions;
  readonly #metrics: ProxyMetrics;
  readonly #note: (message: string) => void;
  readonly #replicas = new Map<string, Replica>();
  readonly #timers: NodeJS.Timeout[] = [];
  readonly #kvEvents: KvEvents;
  #onHang: (target: Target, silentMs: number) => void = () => undefined;

  constructor(options: ProxyOptions, metrics: ProxyMetrics, note: (message: string) => void) {
    this.#options = options;
    this.#metrics = metrics;
    this.#note = note;
    this.times = options.times;
    this.prefillSPerToken = options.prefillSPerToken;
    this.routing = new Routing(options);
    this.#kvEvents = new KvEvents(options, metrics, note);
  }

  /** Adds the configured replicas and waits until each has been asked once what it serves. */
  async start(onHang: (target: Target, silentMs: number) => void): Promise<void> {
    this.#onHang = onHang;
    for (const config of this.#options.replicas) this.add(config);
    this.#timers.push(
      setInterval(() => this.monitor.watch(performance.now()), watchMs),
      setInterval(() => this.#pollAll(), this.times.pollMs),
    );
    await Promise.all([...this.#replicas.values()].map((replica) => this.monitor.poll(replica)));
  }

  replicas(): Iterable<Replica> {
    return this.#replicas.values();
  }

  get size(): number {
    return this.#replicas.size;
  }

  status(): ReplicaStatus[] {
    return [...this.#replicas.values()].map(({ name, config, models, draining, targets }) => ({
      name,
      url: config.url,
      models,
      draining,
      targets: targets.map((target) => ({
        name: target.name,
        ejected: target.ejection?.reason ?? null,
        inFlight: target.attempts.size,
        waiting: [...target.accounts.values()].reduce((sum, { instance }) => sum + instance.waiting.size, 0),
        pendingTokens: this.routing.pendingTokens(target),
      })),
    }));
  }

  /** @throws INVALID_ARGUMENT, CAPACITY_EXHAUSTED */
  add(config: ReplicaConfig): Replica {
    const checked = checkReplica(config);
    this.#kvEvents.check(checked);
    const { limits, times } = this.#options;
    for (const { name, config: other } of this.#replicas.values()) {
      if (name !== checked.name && other.url !== checked.url) continue;
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `the replica ${checked.name} (${checked.url}) is there already, as ${name}: give each its own name and URL`,
        { replica: checked.name },
      );
    }
    if (this.#replicas.size >= limits.replicas) {
      throw new DualPathError(
        'CAPACITY_EXHAUSTED',
        `${checked.name} would be replica ${this.#replicas.size + 1}, the limit is ${limits.replicas}`,
        { replica: checked.name },
      );
    }
    const replica = new Replica(checked, times, limits);
    this.#replicas.set(replica.name, replica);
    void this.monitor.poll(replica);
    return replica;
  }

  /** No new requests go there. @throws INVALID_ARGUMENT */
  drain(name: string): void {
    const replica = this.#find(name);
    replica.draining = true;
    for (const target of replica.targets) this.routing.drain(target);
  }

  /** Drains it, waits for what it has, up to the limit of the drain, and forgets it. @throws INVALID_ARGUMENT */
  async remove(name: string): Promise<void> {
    const replica = this.#find(name);
    this.drain(name);
    const endMs = performance.now() + this.times.drainMs;
    while (replica.inFlight > 0 && performance.now() < endMs) await sleep(20);
    for (const target of replica.targets) this.routing.remove(target);
    this.#replicas.delete(name);
    await Promise.all(replica.targets.map((target) => this.#kvEvents.leave(target)));
    await replica.destroy();
  }

  /** What is among `configs` is added, what is not any more is removed. */
  async set(configs: readonly ReplicaConfig[]): Promise<void> {
    const wanted = new Map(
      configs.map((config) => checkReplica(config)).map((config) => [config.name, config]),
    );
    const gone = [...this.#replicas.keys()].filter((name) => !wanted.has(name));
    for (const [name, config] of wanted) if (!this.#replicas.has(name)) this.add(config);
    await Promise.all(gone.map((name) => this.remove(name)));
  }

  /** A request has come with so many tokens that are cached nowhere known. */
  weigh(tokens: number): void {
    this.meanTokens += meanWeight * (tokens - this.meanTokens);
  }

  eject(target: Target, reason: EjectReason): void {
    this.monitor.eject(target, reason);
  }

  setModels(replica: Replica, models: readonly string[]): void {
    if (replica.draining || this.#replicas.get(replica.name) !== replica) return;
    for (const target of replica.targets) {
      this.routing.setModels(target, models);
      void this.#kvEvents.follow(target);
    }
  }

  setHealth(target: Target, healthy: boolean): void {
    this.routing.setHealth(target, healthy);
  }

  ejected(target: Target, { reason, untilMs }: Ejection): void {
    this.#metrics.ejections.inc({ reason });
    const seconds = ((untilMs - performance.now()) / 1000).toFixed(0);
    this.#note(`${target.name} is passed over for at least ${seconds} s: ${reason}`);
  }

  admitted(target: Target): void {
    this.#note(`${target.name} takes requests again`);
  }

  hangs(target: Target, silentMs: number): void {
    this.#onHang(target, silentMs);
  }

  /** The least busy target that takes requests, of those that serve a model if one is named. */
  leastBusy(model: string | null): Target | undefined {
    let best: Target | undefined;
    for (const { targets, models, draining } of this.#replicas.values()) {
      if (draining || models === null || (model !== null && !models.includes(model))) continue;
      for (const target of targets) {
        if (!target.isEjected && (best === undefined || target.attempts.size < best.attempts.size))
          best = target;
      }
    }
    return best;
  }

  /** Whether any replica serves any model, so that other paths need not say which. */
  get isUniform(): boolean {
    const lists = new Set<string>();
    for (const { models } of this.#replicas.values())
      if (models !== null) lists.add(JSON.stringify([...models].sort()));
    return lists.size <= 1;
  }

  async close(): Promise<void> {
    for (const timer of this.#timers) clearInterval(timer);
    await this.#kvEvents.close();
    await Promise.all([...this.#replicas.values()].map((replica) => replica.destroy()));
  }

  #pollAll(): void {
    for (const replica of this.#replicas.values()) void this.monitor.poll(replica);
  }

  #find(name: string): Replica {
    const replica = this.#replicas.get(name);
    if (replica !== undefined) return replica;
    throw new DualPathError('INVALID_ARGUMENT', `there is no replica ${name}`, { replica: name });
  }
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
