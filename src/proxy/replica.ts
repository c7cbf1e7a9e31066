import { Pool } from 'undici';
import type { ProxyLimits, ProxyTimes, ReplicaConfig } from './options.js';
import { Target } from './target.js';

/** One endpoint: its connections, its models, its ranks. */
export class Replica {
  readonly config: ReplicaConfig & { readonly name: string };
  readonly name: string;
  readonly targets: readonly Target[];
  readonly pool: Pool;
  /** Probes and polls, which must not wait behind requests. */
  readonly probes: Pool;
  /** Ids that /v1/models lists; null until it has. */
  models: readonly string[] | null = null;
  /** Those of them that it lists with a model they belong to. */
  adapters: ReadonlySet<string> = new Set();
  modelsMs = -Infinity;
  draining = false;
  /** The round of probes that is under way. */
  polling: Promise<void> | null = null;
  /** Probes that failed in a row, and that succeeded. */
  probeFailures = 0;
  probeSuccesses = 0;

  constructor(config: ReplicaConfig & { readonly name: string }, times: ProxyTimes, limits: ProxyLimits) {
    this.config = config;
    this.name = config.name;
    const ranks = config.ranks ?? 1;
    this.targets =
      ranks === 1
        ? [new Target(this, null)]
        : Array.from({ length: ranks }, (_, rank) => new Target(this, rank));
    this.pool = new Pool(config.url, {
      connections: limits.requests,
      pipelining: 1,
      connectTimeout: times.connectMs,
      // The router's own clock ends what takes too long.
      headersTimeout: 0,
      bodyTimeout: 0,
      keepAliveTimeout: 4000,
      maxHeaderSize: limits.headerBytes,
    });
    this.probes = new Pool(config.url, {
      connections: 4,
      pipelining: 1,
      connectTimeout: times.connectMs,
      headersTimeout: times.probeMs,
      bodyTimeout: times.probeMs,
      maxResponseSize: 16 * 1024 * 1024,
    });
  }

  get inFlight(): number {
    let sum = 0;
    for (const target of this.targets) sum += target.attempts.size;
    return sum;
  }

  async destroy(): Promise<void> {
    await Promise.all([this.pool.destroy(), this.probes.destroy()]);
  }
}
