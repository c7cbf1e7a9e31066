/**
 * What a decision of the router costs, block hashes given: by itself, at 8 to 1,024 replicas whose caches are full; what a
 * rebalancing costs; and what the tables hold after millions of distinct prefixes. No network, no bytes.
 */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import {
  DualMapPolicy,
  hash32,
  paperDualMap,
  PrefixIndex,
  rebalance,
  Router,
  type RoutedRequest,
  type RoutingPolicy,
} from '../router/index.js';
import { quantile } from '../telemetry/index.js';

export interface RouterBenchOptions {
  readonly signal?: AbortSignal;
  readonly onProgress?: (step: string) => void;
  /** Default 8, 32, 128, 1,024. */
  readonly replicas?: readonly number[];
  /** Decisions timed at each; default 50,000. */
  readonly decisions?: number;
  /** Default 10,000,000. */
  readonly distinctPrefixes?: number;
}

export interface RouterResult {
  readonly replicas: number;
  /** `submit` of a prompt: key, pair, hits, choice, ledger, window. */
  readonly p50Us: number;
  readonly p99Us: number;
  readonly maxUs: number;
  /** `finished`: 64 blocks into the index of the replica that has them now. */
  readonly finishP50Us: number;
  readonly finishP99Us: number;
}

export interface RouterBenchResult {
  readonly results: readonly RouterResult[];
  readonly promptBlocks: number;
  readonly publishedRouteUs: 600;
  readonly rebalance: {
    readonly queuedRequests: number;
    readonly moved: number;
    readonly p50Ms: number;
    readonly maxMs: number;
    readonly publishedMs: 2.5;
  };
  readonly memory: {
    readonly distinctPrefixes: number;
    readonly replicas: number;
    /** Tables of the prefix index of one replica with a cache of 1M tokens in blocks of 512. */
    readonly indexBytesPerReplica: number;
    readonly publishedBytesPerReplica: 146_000;
    /** Heap and array buffers after the first tenth of the prefixes, and at the end. */
    readonly warmBytes: number;
    readonly finalBytes: number;
  };
}

const blockTokens = 512;
const cacheTokens = 1_000_000;
const promptBlocks = 64;
const promptTokens = promptBlocks * blockTokens + 100;
const options = { blockTokens, prefillSPerToken: 0.00016, sloS: 5, dispatchedTokensMax: 16_384 };

export async function benchRouter(given: RouterBenchOptions = {}): Promise<RouterBenchResult> {
  const step = (name: string): void => {
    given.signal?.throwIfAborted();
    given.onProgress?.(name);
  };
  const results: RouterResult[] = [];
  for (const replicas of given.replicas ?? [8, 32, 128, 1024]) {
    step(`decisions at ${replicas} replicas`);
    results.push(decisions(replicas, given.decisions ?? 50_000));
  }
  step('rebalancing');
  const rebalanced = rebalancing(1000);
  step('memory');
  const memory = memoryOf(given.distinctPrefixes ?? 10_000_000, 8, step);
  return { results, promptBlocks, publishedRouteUs: 600, rebalance: rebalanced, memory };
}

/** A router with replicas, and prompts: conversations that come back, half their blocks known, and new ones. */
class Workload {
  readonly router: Router;
  readonly dispatched: RoutedRequest[] = [];
  /** How often each prompt has been renewed. */
  readonly #versions: Uint32Array;
  nowS = 0;
  #id = 0;

  constructor(replicas: number, prompts: number, policy: RoutingPolicy = new DualMapPolicy(paperDualMap)) {
    this.router = new Router(options, policy, {
      dispatch: (request) => this.dispatched.push(request),
    });
    for (let i = 0; i < replicas; i++) this.router.addInstance({ name: `replica-${i}`, cacheTokens }, 0);
    this.#versions = new Uint32Array(prompts);
  }

  /** Keys of a prompt as a caller has just hashed them; from block `renewedFrom` on they are new each time. */
  keysOf(prompt: number, renewedFrom: number): Uint32Array {
    const version = ++this.#versions[prompt]!;
    const keys = new Uint32Array(2 * promptBlocks);
    for (let block = 0; block < promptBlocks; block++) {
      const of = block < renewedFrom ? 0 : version;
      keys[2 * block] = hash32(prompt * promptBlocks + block, of, 1);
      keys[2 * block + 1] = hash32(of, prompt * promptBlocks + block, 2);
    }
    return keys;
  }

  submit(keys: Uint32Array): RoutedRequest {
    const input = { id: this.#id++, keys, firstBlock: 0, blocks: promptBlocks, promptTokens };
    return this.router.submit(input, this.nowS);
  }
}

function decisions(replicas: number, count: number): RouterResult {
  // Half of what the caches hold: every replica is full of prompts that may come back.
  const prompts = Math.max(256, Math.floor((replicas * cacheTokens) / promptTokens / 2));
  const workload = new Workload(replicas, prompts);
  // Time goes on as fast as replicas at 70 % of their load work.
  const busyS = ((promptTokens / 2) * options.prefillSPerToken) / 0.7;
  const warmUp = Math.max(20_000, 2 * prompts);
  const submitUs = new Float64Array(count);
  const finishUs = new Float64Array(count);
  for (let i = -warmUp; i < count; i++) {
    const prompt = hash32(i, replicas, 7) % prompts;
    // A turn on: the second half of the prompt is new.
    const keys = workload.keysOf(prompt, promptBlocks / 2);
    workload.nowS += busyS / replicas;
    const before = performance.now();
    workload.submit(keys);
    const after = performance.now();
    if (i >= 0) submitUs[i] = (after - before) * 1000;
    while (workload.dispatched.length > replicas / 2) finishOldest(workload, finishUs, i);
  }
  const [submits, finishes] = [submitUs.sort(), finishUs.sort()];
  return {
    replicas,
    p50Us: quantile(submits, 0.5),
    p99Us: quantile(submits, 0.99),
    maxUs: submits.at(-1)!,
    finishP50Us: quantile(finishes, 0.5),
    finishP99Us: quantile(finishes, 0.99),
  };
}

function finishOldest(workload: Workload, finishUs: Float64Array, i: number): void {
  const request = workload.dispatched.shift()!;
  const before = performance.now();
  workload.router.finished(request, workload.nowS);
  if (i >= 0) finishUs[i] = (performance.now() - before) * 1000;
}

/** A queue of so many at one replica whose other candidates hold half of each prompt, rebalanced in one round. */
function rebalancing(queuedRequests: number): RouterBenchResult['rebalance'] {
  const timesMs: number[] = [];
  let moved = 0;
  for (let round = 0; round < 25; round++) {
    const policy: RoutingPolicy = {
      name: 'one',
      route: (request, { instances }) => {
        request.primary = instances[0]!;
        request.secondary = instances[1 + (request.id % (instances.length - 1))]!;
        request.secondary.cache.touch(request.keys, request.firstBlock, promptBlocks / 2);
        return request.primary;
      },
      queued: (request, cluster, move) => {
        if (request.id !== queuedRequests - 1) return;
        const before = performance.now();
        moved = rebalance(request.instance, cluster, { targets: 'pair' }, move);
        if (round >= 5) timesMs.push(performance.now() - before);
      },
    };
    const workload = new Workload(64, queuedRequests, policy);
    for (let prompt = 0; prompt < queuedRequests; prompt++)
      workload.submit(workload.keysOf(prompt, promptBlocks));
  }
  const sorted = Float64Array.from(timesMs).sort();
  return { queuedRequests, moved, p50Ms: quantile(sorted, 0.5), maxMs: sorted.at(-1)!, publishedMs: 2.5 };
}

function memoryOf(
  distinctPrefixes: number,
  replicas: number,
  step: (name: string) => void,
): RouterBenchResult['memory'] {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const bytes = (): number => {
    collect();
    const { heapUsed, arrayBuffers } = process.memoryUsage();
    return heapUsed + arrayBuffers;
  };
  const prompts = 1024;
  const workload = new Workload(replicas, prompts);
  let warmBytes = 0;
  // Every block of every prompt is a prefix that was never seen.
  for (let prefixes = 0, i = 0; prefixes < distinctPrefixes; prefixes += promptBlocks, i++) {
    if (i % 4096 === 0) step(`memory: ${prefixes} prefixes`);
    workload.nowS += 1;
    workload.submit(workload.keysOf(i % prompts, 0));
    while (workload.dispatched.length > 0)
      workload.router.finished(workload.dispatched.shift()!, workload.nowS);
    if (warmBytes === 0 && prefixes >= distinctPrefixes / 10) warmBytes = bytes();
  }
  return {
    distinctPrefixes,
    replicas,
    indexBytesPerReplica: new PrefixIndex(Math.floor(cacheTokens / blockTokens)).bytes,
    publishedBytesPerReplica: 146_000,
    warmBytes,
    finalBytes: bytes(),
  };
}
