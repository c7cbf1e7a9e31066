import { spawnSync } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import { benchRequest, closedLoop, openLoop, type RateResult } from './client.js';
import { startContender, type Contender, type ContenderName } from './contenders.js';
import { manyStreams, type StreamsResult } from './streams.js';

export interface ProxyBenchOptions {
  readonly sizesBytes: readonly number[];
  readonly contenders: readonly ContenderName[];
  readonly rounds: number;
  readonly measureMs: number;
  readonly connections: number;
  readonly streams: number;
  readonly events: number;
  readonly largeBodyBytes: number;
  readonly policy: string;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((step: string) => void) | undefined;
}

export const defaultProxyBench: ProxyBenchOptions = {
  sizesBytes: [2048, 65_536],
  contenders: ['none', 'dualpath', 'nginx', 'sglang-router'],
  rounds: 3,
  measureMs: 2000,
  connections: 32,
  streams: 2000,
  events: 50,
  largeBodyBytes: 10_000_000,
  policy: 'dualmap',
};

export interface ThroughputRow {
  readonly proxy: ContenderName;
  readonly bodyBytes: number;
  /** The median of the rounds, then the least and the most. */
  readonly perS: number;
  readonly perSMin: number;
  readonly perSMax: number;
  /** Processor time that the proxy took for each; what a machine shared with others leaves comparable. */
  readonly cpuUs: number | null;
  readonly failed: number;
}

export interface LatencyRow extends RateResult {
  readonly proxy: ContenderName;
  readonly bodyBytes: number;
  readonly offeredPerS: number;
  /** Beyond what the client and upstream alone take at the same rate. */
  readonly addedP50Ms: number;
  readonly addedP99Ms: number;
}

export interface StreamsRow extends StreamsResult {
  readonly proxy: ContenderName;
  readonly largeBodies: number;
  readonly addedP99Ms: number;
}

export interface ProxyBenchResult {
  readonly complete: boolean;
  readonly cores: number;
  /** The proxy has a core of its own; null: it could not be pinned. */
  readonly proxyCore: number | null;
  readonly policy: string;
  readonly missing: readonly ContenderName[];
  readonly throughput: readonly ThroughputRow[];
  readonly halfLoad: readonly LatencyRow[];
  readonly streams: readonly StreamsRow[];
}

const eventMs = 100;
const warmUpMs = 1000;
/** Distinct prompts: neither all alike nor all new. */
const distinct = 64;
const upstreamCount = 4;

/** The router beside other proxies: each pinned to one core, client and upstreams together on another. */
export async function benchProxy(options: ProxyBenchOptions): Promise<ProxyBenchResult> {
  const cores = availableParallelism();
  const proxyCore = cores > 1 && pinSelf(0) ? 1 : null;
  const workerData = { count: upstreamCount, events: options.events, eventMs };
  const worker = new Worker(new URL('./upstream-worker.js', import.meta.url), { workerData });
  const ports = await new Promise<number[]>((resolve) => worker.once('message', resolve));
  const started: Contender[] = [];
  const missing: ContenderName[] = [];
  const isOver = (): boolean => options.signal?.aborted === true;
  const progress = options.onProgress ?? (() => undefined);
  try {
    for (const name of options.contenders) {
      progress(`starting ${name}`);
      const contender = await startContender(name, ports, proxyCore, options.policy);
      if (contender === null) missing.push(name);
      else started.push(contender);
    }
    const throughput = await measureThroughput(started, options, isOver, progress);
    const halfLoad = await measureHalfLoad(started, throughput, options, isOver, progress);
    const streams = options.streams > 0 ? await measureStreams(started, options, isOver, progress) : [];
    const { policy } = options;
    return { complete: !isOver(), cores, proxyCore, policy, missing, throughput, halfLoad, streams };
  } finally {
    for (const contender of started) await contender.stop();
    await worker.terminate();
  }
}

/** This process and all its threads on one core. */
function pinSelf(core: number): boolean {
  return spawnSync('taskset', ['-a', '-cp', String(core), String(process.pid)]).status === 0;
}

function requestsOf(bodyBytes: number): Buffer[] {
  return Array.from({ length: distinct }, (_, i) => benchRequest('/v1/completions', bodyBytes, i));
}

async function measureThroughput(
  contenders: readonly Contender[],
  { sizesBytes, rounds, connections, measureMs }: ProxyBenchOptions,
  isOver: () => boolean,
  progress: (step: string) => void,
): Promise<ThroughputRow[]> {
  const rows: ThroughputRow[] = [];
  for (const bodyBytes of sizesBytes) {
    const requests = requestsOf(bodyBytes);
    const rates = new Map<Contender, RateResult[]>(contenders.map((contender) => [contender, []]));
    const cpuS = new Map<Contender, number>();
    // In turn, so that what the machine does meanwhile falls on all alike.
    for (let round = 0; round < rounds; round++) {
      for (const contender of contenders) {
        if (isOver()) return rows;
        progress(`${contender.name}, ${bodyBytes} bytes, round ${round + 1}`);
        const { port } = contender;
        // What is not measured yet warms it up: code, caches, connections.
        await closedLoop(port, requests, connections, 0, warmUpMs);
        const beforeS = contender.cpuS();
        rates.get(contender)!.push(await closedLoop(port, requests, connections, 0, measureMs));
        if (beforeS !== null) {
          cpuS.set(contender, (cpuS.get(contender) ?? 0) + contender.cpuS()! - beforeS);
        }
      }
    }
    for (const [contender, results] of rates) {
      const { name } = contender;
      const requestCount = results.reduce((sum, each) => sum + each.requests, 0);
      const usedS = cpuS.get(contender);
      const perS = results.map((each) => each.perS).sort((a, b) => a - b);
      rows.push({
        proxy: name as ContenderName,
        bodyBytes,
        perS: perS[perS.length >> 1]!,
        perSMin: perS[0]!,
        perSMax: perS.at(-1)!,
        cpuUs: usedS === undefined || requestCount === 0 ? null : (1e6 * usedS) / requestCount,
        failed: results.reduce((sum, { failed }) => sum + failed, 0),
      });
    }
  }
  return rows;
}

/** At half of what the router managed, for all alike. */
async function measureHalfLoad(
  contenders: readonly Contender[],
  throughput: readonly ThroughputRow[],
  { sizesBytes, measureMs }: ProxyBenchOptions,
  isOver: () => boolean,
  progress: (step: string) => void,
): Promise<LatencyRow[]> {
  const rows: LatencyRow[] = [];
  for (const bodyBytes of sizesBytes) {
    const own = throughput.find((row) => row.proxy === 'dualpath' && row.bodyBytes === bodyBytes);
    if (own === undefined) continue;
    const offeredPerS = Math.max(1, Math.round(own.perS / 2));
    const requests = requestsOf(bodyBytes);
    let bare: RateResult | undefined;
    for (const { name, port } of contenders) {
      if (isOver()) return rows;
      progress(`${name}, ${bodyBytes} bytes, ${offeredPerS} a second`);
      const result = await openLoop(port, requests, offeredPerS, warmUpMs, measureMs);
      if (name === 'none') bare = result;
      rows.push({
        proxy: name as ContenderName,
        bodyBytes,
        offeredPerS,
        ...result,
        addedP50Ms: result.p50Ms - (bare?.p50Ms ?? 0),
        addedP99Ms: result.p99Ms - (bare?.p99Ms ?? 0),
      });
    }
  }
  return rows;
}

/** Streams, and large bodies beside them, twice a second. */
async function measureStreams(
  contenders: readonly Contender[],
  { streams, events, largeBodyBytes }: ProxyBenchOptions,
  isOver: () => boolean,
  progress: (step: string) => void,
): Promise<StreamsRow[]> {
  const rows: StreamsRow[] = [];
  const large = [benchRequest('/v1/completions', largeBodyBytes, 0)];
  let bare: StreamsRow | undefined;
  for (const { name, port } of contenders) {
    if (isOver()) return rows;
    progress(`${name}, ${streams} streams`);
    let largeBodies = 0;
    let running = true;
    const sendLarge = async (): Promise<void> => {
      while (running) {
        const { requests } = await openLoop(port, large, 1, 0, 500);
        largeBodies += requests;
        await new Promise((resolve) => setTimeout(resolve, 300));
      }
    };
    const beside = sendLarge();
    const result = await manyStreams(port, streams, events);
    running = false;
    await beside;
    const row: StreamsRow = {
      proxy: name as ContenderName,
      ...result,
      largeBodies,
      addedP99Ms: result.delayP99Ms - (bare?.delayP99Ms ?? 0),
    };
    if (name === 'none') bare = row;
    rows.push(row);
  }
  return rows;
}
