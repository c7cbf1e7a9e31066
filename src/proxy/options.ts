import { randomBytes } from 'node:crypto';
import { DualPathError } from '../errors/index.js';
import type { Log } from '../log/index.js';

/** A replica as it is configured: one endpoint, with one instance for each data-parallel rank. */
export interface ReplicaConfig {
  /** `http://host:port`, without a path. */
  readonly url: string;
  /** Unlike every other's; default `host:port`. Decides its place on the rings: routers side by side use the same. */
  readonly name?: string | undefined;
  /** Data-parallel ranks that are addressed one by one; default 1: the server chooses. */
  readonly ranks?: number | undefined;
  /** How a rank is named: SGLang takes a member of the body, the others a header. Default vllm. */
  readonly engine?: 'vllm' | 'sglang' | undefined;
  readonly weight?: number | undefined;
  /** Tokens that a rank's prefix cache holds; default that of the router's options. */
  readonly cacheTokens?: number | undefined;
  /** Where it publishes KV events, as vLLM does; default: nowhere. */
  readonly kvEvents?: KvEventsConfig | undefined;
}

/** ZMQ endpoints of the first data-parallel rank, `tcp://host:port`; the others have the ports behind it. */
export interface KvEventsConfig {
  readonly endpoint: string;
  /** Where batches that did not come can be asked for. */
  readonly replay?: string | undefined;
  /** Default: all. */
  readonly topic?: string | undefined;
}

export interface ProxyOptions {
  readonly host: string;
  readonly port: number;
  /** Port of the admin API; null: there is none. */
  readonly adminPort: number | null;
  readonly adminHost: string;
  /** What the admin API asks for as a bearer token; null: nothing, which is refused beyond the loopback address. */
  readonly adminToken: string | null;
  readonly replicas: readonly ReplicaConfig[];
  /** By the name of the evaluation's policies. */
  readonly policy: string;
  readonly sloS: number;
  readonly prefillSPerToken: number;
  readonly cacheTokens: number;
  readonly dispatchedTokensMax: number;
  readonly blockTokens: number;
  readonly bytesPerToken: number;
  /** Of the keys and rings; routers side by side share it. */
  readonly secret: Uint8Array;
  /** Tenant by the SHA-256 (hex) of its bearer token; null: everybody is one tenant, and nobody is asked. */
  readonly tenants: ReadonlyMap<string, string> | null;
  /** Lines of system prompts that change with every request and are no part of the key. */
  readonly volatileLines: readonly RegExp[];
  /** Admin APIs of the other routers, `http://host:port`. */
  readonly peers: readonly string[];
  readonly limits: ProxyLimits;
  readonly times: ProxyTimes;
  /** A line for each request. */
  readonly log: Log | null;
}

export interface ProxyLimits {
  readonly headerBytes: number;
  readonly bodyBytes: number;
  /** Bodies in memory, all together. */
  readonly bufferedBytes: number;
  readonly connections: number;
  /** Requests that wait at the router for their replica; with more the answer is 429. */
  readonly waitingRequests: number;
  /** Requests in the router, streaming ones included. */
  readonly requests: number;
  /** Bodies from this size on are parsed and hashed in a worker. */
  readonly workerBytes: number;
  readonly workers: number;
  readonly replicas: number;
  /** Response ids that are remembered with their replica. */
  readonly responses: number;
}

/** All in milliseconds. */
export interface ProxyTimes {
  readonly headersMs: number;
  /** Until the whole request has come. */
  readonly requestMs: number;
  readonly keepAliveMs: number;
  readonly connectMs: number;
  /** Of a request, from its arrival to its end; a client may ask for less with `x-request-timeout-ms`. */
  readonly deadlineMs: number;
  /** Between two pieces of a response that the replica owes. */
  readonly streamIdleMs: number;
  /** A client that takes nothing for so long is gone. */
  readonly clientStallMs: number;
  /** No bytes and no progress of counters for so long: the replica hangs. */
  readonly hungMs: number;
  readonly pollMs: number;
  readonly probeMs: number;
  readonly modelsMs: number;
  /** How long an ejected replica stays out, at first and at most; doubled each time that it is ejected soon again. */
  readonly ejectMs: number;
  readonly ejectMaxMs: number;
  /** Requests under way at shutdown are given so long. */
  readonly drainMs: number;
}

export const defaultLimits: ProxyLimits = {
  headerBytes: 16 * 1024,
  bodyBytes: 64 * 1024 * 1024,
  bufferedBytes: 1024 * 1024 * 1024,
  connections: 16_384,
  waitingRequests: 4096,
  requests: 16_384,
  workerBytes: 128 * 1024,
  workers: 1,
  replicas: 1024,
  responses: 100_000,
};

export const defaultTimes: ProxyTimes = {
  headersMs: 10_000,
  requestMs: 60_000,
  keepAliveMs: 75_000,
  connectMs: 2000,
  deadlineMs: 600_000,
  streamIdleMs: 60_000,
  clientStallMs: 120_000,
  hungMs: 3000,
  pollMs: 500,
  probeMs: 2000,
  modelsMs: 30_000,
  ejectMs: 2000,
  ejectMaxMs: 60_000,
  drainMs: 10_000,
};

/** The header line with which Claude Code begins its system prompts; it differs in every request. */
export const defaultVolatileLines: readonly RegExp[] = [/^\u0002?x-anthropic-billing-header:.*$/gm];

export const defaultOptions: ProxyOptions = {
  host: '127.0.0.1',
  port: 8000,
  adminPort: null,
  adminHost: '127.0.0.1',
  adminToken: null,
  replicas: [],
  policy: 'dualmap',
  sloS: 5,
  prefillSPerToken: 0.00016,
  cacheTokens: 1_000_000,
  dispatchedTokensMax: 16_384,
  blockTokens: 128,
  bytesPerToken: 4,
  secret: randomBytes(32),
  tenants: null,
  volatileLines: defaultVolatileLines,
  peers: [],
  limits: defaultLimits,
  times: defaultTimes,
  log: null,
};

/** Checks a replica's description and fills in its name. @throws INVALID_ARGUMENT */
export function checkReplica(config: ReplicaConfig): ReplicaConfig & { readonly name: string } {
  const { url, ranks = 1, engine, weight, cacheTokens } = config;
  let parsed: URL;
  try {
    parsed = new URL(url);
  } catch {
    throw invalid(`the replica ${JSON.stringify(url)} is no URL: give one such as http://10.0.0.1:8000`, url);
  }
  if (!/^https?:$/.test(parsed.protocol) || parsed.pathname !== '/' || parsed.search !== '') {
    throw invalid(`the replica ${url} must be http or https, a host and a port, without a path`, url);
  }
  if (!(Number.isInteger(ranks) && ranks >= 1 && ranks <= 1024)) {
    throw invalid(`${url} has ${ranks} ranks: give a whole number from 1 to 1024`, url);
  }
  if (engine !== undefined && engine !== 'vllm' && engine !== 'sglang') {
    throw invalid(`${url} has the engine ${String(engine)}: give vllm or sglang`, url);
  }
  for (const [name, value] of Object.entries({ weight, cacheTokens })) {
    if (value !== undefined && !(value > 0 && Number.isFinite(value))) {
      throw invalid(`${name} of ${url} is ${value}: give a number above 0`, url);
    }
  }
  for (const address of [config.kvEvents?.endpoint, config.kvEvents?.replay]) {
    if (address === undefined || /^tcp:\/\/[^\s/*]+:\d{1,5}$/.test(address)) continue;
    throw invalid(`KV events of ${url} at ${address}: give an endpoint such as tcp://10.0.0.1:5557`, url);
  }
  const name = config.name ?? parsed.host;
  if (!/^[\w.:[\]-]{1,128}$/.test(name)) {
    throw invalid(
      `${JSON.stringify(name)} is no name for a replica: letters, digits, . : - and _, 128 at most`,
      url,
    );
  }
  return { ...config, url: parsed.origin, name };
}

function invalid(message: string, url: string): DualPathError {
  return new DualPathError('INVALID_ARGUMENT', message, { replica: String(url) });
}
