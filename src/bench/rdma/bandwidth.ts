/** Bandwidth and latency of this project's chains, beside perftest's tools in the same run. */
import { estimateRatio, median } from '../paired.js';
import { quantile } from '../quantile.js';
import { DualPathError } from '../../errors/index.js';
import type { TrafficClassName } from '../../rdma/index.js';
import { Sides, type LoadPair, type SidesOptions } from './sides.js';
import type { PerftestTool } from './perftest.js';

export type RdmaTest = 'write' | 'read' | 'write-latency' | 'read-latency';

export interface RdmaBenchOptions extends SidesOptions {
  readonly tests?: readonly RdmaTest[];
  readonly sizes?: readonly number[];
  /** Requests in a chain; large ones are cut so that a chain has at most 4 MiB. */
  readonly postList?: number;
  readonly queuePairs?: number;
  readonly depth?: number;
  readonly trafficClass?: TrafficClassName;
  readonly compare?: 'perftest';
  /** Of adjacent slices; with a comparison one of each. */
  readonly pairs?: number;
  readonly sliceS?: number;
  readonly onProgress?: (step: string) => void;
}

export interface RdmaBandwidthResult {
  readonly test: 'write' | 'read';
  readonly sizeBytes: number;
  readonly postList: number;
  readonly queuePairs: number;
  readonly depth: number;
  readonly iterations: number;
  /** The best slice, the middle one, and its messages. */
  readonly bandwidthPeakBytesPerS: number;
  readonly bandwidthBytesPerS: number;
  readonly messagesPerS: number;
  readonly perftestBytesPerS: number | undefined;
  /** Ours over perftest's, and half of its 95 % confidence interval. */
  readonly ratio: number | undefined;
  readonly ratioHalfWidth: number | undefined;
  readonly pairs: number;
  /** Counted: one post and one completion a chain. */
  readonly chains: number;
  readonly postCalls: number;
  readonly completions: number;
}

export interface LatencyFigures {
  readonly p50Us: number;
  readonly p99Us: number;
  readonly samples: number;
}

export interface RdmaLatencyResult extends LatencyFigures {
  readonly test: 'write-latency' | 'read-latency';
  readonly sizeBytes: number;
  readonly perftest: LatencyFigures | undefined;
  readonly ratio: number | undefined;
}

/** What chains bring: the same requests one by one and in chains, in adjacent slices. */
export interface BatchingResult {
  readonly sizeBytes: number;
  readonly postList: number;
  readonly singleBytesPerS: number;
  readonly chainedBytesPerS: number;
  readonly gain: number;
  readonly gainHalfWidth: number;
}

export interface RdmaBenchResult {
  readonly results: readonly RdmaBandwidthResult[];
  readonly latency: readonly RdmaLatencyResult[];
  readonly batching: BatchingResult | undefined;
  readonly trafficClass: TrafficClassName;
  readonly carriedBy: string;
  readonly hosts: number;
}

const defaults = {
  tests: ['write'] as readonly RdmaTest[],
  sizes: [4096, 65536, 1 << 20] as readonly number[],
  postList: 32,
  queuePairs: 1,
  depth: 128,
  trafficClass: 'kv' as TrafficClassName,
  pairs: 5,
  sliceS: 1.5,
};
type Settings = typeof defaults & Pick<RdmaBenchOptions, 'compare' | 'signal' | 'onProgress'>;

const mostChainBytes = 4 << 20;
const latencySamplesASlice = 500;
const tools = {
  write: 'ib_write_bw',
  read: 'ib_read_bw',
  'write-latency': 'ib_write_lat',
  'read-latency': 'ib_read_lat',
} as const satisfies Record<RdmaTest, PerftestTool>;

/** @throws RDMA_UNAVAILABLE, INVALID_ARGUMENT, RDMA_FAILED */
export async function benchRdma(options: RdmaBenchOptions = {}): Promise<RdmaBenchResult> {
  const given = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
  const settings: Settings = { ...defaults, ...given };
  if (settings.compare !== undefined && settings.pairs < 2) {
    throw new DualPathError('INVALID_ARGUMENT', `${settings.pairs} pairs; a comparison needs at least 2`);
  }
  const sides = await Sides.open(options);
  try {
    return await measure(sides, settings);
  } finally {
    await sides.close();
  }
}

async function measure(sides: Sides, settings: Settings): Promise<RdmaBenchResult> {
  const results: RdmaBandwidthResult[] = [];
  const latency: RdmaLatencyResult[] = [];
  for (const test of settings.tests) {
    for (const bytes of settings.sizes) {
      if (test === 'write' || test === 'read') results.push(await bandwidth(sides, settings, test, bytes));
      else latency.push(await latencyOf(sides, settings, test, bytes));
    }
  }
  const batched = settings.tests.includes('write') && settings.postList > 1;
  return {
    results,
    latency,
    batching: batched ? await batching(sides, settings, Math.min(...settings.sizes)) : undefined,
    trafficClass: settings.trafficClass,
    carriedBy: `RDMA device ${sides.device}, port ${sides.port}, ${sides.linkLayer}`,
    hosts: sides.hosts,
  };
}

function chainOf({ postList, depth }: Settings, bytes: number): number {
  return Math.max(1, Math.min(postList, depth >> 1, Math.floor(mostChainBytes / bytes)));
}

/** Requests of one slice, from a short run; a whole number of chains. */
async function calibrate(
  pair: LoadPair,
  kind: 'write' | 'read',
  bytes: number,
  chain: number,
  sliceS: number,
): Promise<number> {
  let requests = chain;
  for (;;) {
    const { elapsedNs } = await pair.run({ kind, bytes, chain, requests });
    const wanted = Math.ceil((requests * sliceS * 1e9) / elapsedNs / chain) * chain;
    if (elapsedNs > 0.4 * sliceS * 1e9) return Math.max(wanted, 5 * chain);
    requests = Math.min(wanted, requests * 8);
  }
}

interface Slice {
  readonly bytesPerS: number;
  readonly chains: number;
  readonly postCalls: number;
  readonly completions: number;
}

async function slice(
  pair: LoadPair,
  kind: 'write' | 'read',
  bytes: number,
  chain: number,
  requests: number,
): Promise<Slice> {
  const result = await pair.run({ kind, bytes, chain, requests });
  return { ...result, bytesPerS: (result.bytes / result.elapsedNs) * 1e9 };
}

async function bandwidth(
  sides: Sides,
  settings: Settings,
  test: 'write' | 'read',
  bytes: number,
): Promise<RdmaBandwidthResult> {
  const { queuePairs, depth, trafficClass, pairs, sliceS, compare } = settings;
  const chain = chainOf(settings, bytes);
  const pair = await sides.connect({ bytes, queuePairs, depth, trafficClass });
  const iterations = await calibrate(pair, test, bytes, chain, sliceS);
  const ours: Slice[] = [];
  const theirs: number[] = [];
  const run = {
    tool: tools[test],
    bytes,
    chain,
    depth,
    queuePairs,
    trafficClass,
    // perftest counts them for each queue pair.
    iterations: Math.max(chain * 2, Math.ceil(iterations / queuePairs / chain) * chain),
  };
  for (let i = 0; i < pairs; i++) {
    settings.signal?.throwIfAborted();
    settings.onProgress?.(`${test}, ${bytes} bytes, pair ${i + 1} of ${pairs}`);
    const turns = [
      async () => void ours.push(await slice(pair, test, bytes, chain, iterations)),
      ...(compare === undefined ? [] : [async () => void theirs.push(await sides.perftestBandwidth(run))]),
    ];
    for (const turn of i % 2 === 0 ? turns : turns.reverse()) await turn();
  }
  await pair.close();
  const rates = ours.map(({ bytesPerS }) => bytesPerS);
  const ratio =
    compare === undefined ? undefined : estimateRatio(rates.map((rate, i) => [rate, theirs[i]!] as const));
  const sum = (of: (one: Slice) => number): number => ours.reduce((total, one) => total + of(one), 0);
  return {
    test,
    sizeBytes: bytes,
    postList: chain,
    queuePairs,
    depth,
    iterations,
    bandwidthPeakBytesPerS: Math.max(...rates),
    bandwidthBytesPerS: median(rates),
    messagesPerS: median(rates) / bytes,
    perftestBytesPerS: compare === undefined ? undefined : median(theirs),
    ratio: ratio?.ratio,
    ratioHalfWidth: ratio?.halfWidth,
    pairs,
    chains: sum(({ chains }) => chains),
    postCalls: sum(({ postCalls }) => postCalls),
    completions: sum(({ completions }) => completions),
  };
}

async function batching(sides: Sides, settings: Settings, bytes: number): Promise<BatchingResult> {
  const { queuePairs, depth, trafficClass, sliceS } = settings;
  const chain = chainOf(settings, bytes);
  const pairs = Math.max(2, settings.pairs);
  const pair = await sides.connect({ bytes, queuePairs, depth, trafficClass });
  const requests = await calibrate(pair, 'write', bytes, chain, sliceS);
  const [single, chained]: [number[], number[]] = [[], []];
  for (let i = 0; i < pairs; i++) {
    settings.signal?.throwIfAborted();
    settings.onProgress?.(`one by one and in chains, pair ${i + 1} of ${pairs}`);
    const turns = [
      async () => void single.push((await slice(pair, 'write', bytes, 1, requests)).bytesPerS),
      async () => void chained.push((await slice(pair, 'write', bytes, chain, requests)).bytesPerS),
    ];
    for (const turn of i % 2 === 0 ? turns : turns.reverse()) await turn();
  }
  await pair.close();
  const { ratio, halfWidth } = estimateRatio(chained.map((rate, i) => [rate, single[i]!] as const));
  return {
    sizeBytes: bytes,
    postList: chain,
    singleBytesPerS: median(single),
    chainedBytesPerS: median(chained),
    gain: ratio,
    gainHalfWidth: halfWidth,
  };
}

export function latencyFigures(samplesUs: readonly number[]): LatencyFigures {
  return { p50Us: quantile(samplesUs, 0.5), p99Us: quantile(samplesUs, 0.99), samples: samplesUs.length };
}

async function latencyOf(
  sides: Sides,
  settings: Settings,
  test: 'write-latency' | 'read-latency',
  bytes: number,
): Promise<RdmaLatencyResult> {
  const { trafficClass, pairs, compare } = settings;
  const pair = await sides.connect({ bytes, queuePairs: 1, depth: 4, trafficClass });
  const requests = latencySamplesASlice;
  const ours: number[] = [];
  const theirs: number[] = [];
  // perftest prints one sample fewer.
  const run = { tool: tools[test], bytes, iterations: requests + 1, queuePairs: 1, trafficClass };
  const measureOurs = async (): Promise<void> => {
    const samplesNs =
      test === 'write-latency'
        ? await pair.pingPong(bytes, requests)
        : (await pair.run({ kind: 'readLatency', bytes, requests })).latencyNs;
    ours.push(...samplesNs.map((ns) => ns / 1000));
  };
  for (let i = 0; i < pairs; i++) {
    settings.signal?.throwIfAborted();
    settings.onProgress?.(`${test}, ${bytes} bytes, pair ${i + 1} of ${pairs}`);
    await measureOurs();
    if (compare !== undefined) theirs.push(...(await sides.perftestLatencies(run)));
  }
  await pair.close();
  const figures = latencyFigures(ours);
  const perftest = compare === undefined ? undefined : latencyFigures(theirs);
  return {
    test,
    sizeBytes: bytes,
    ...figures,
    perftest,
    ratio: perftest === undefined ? undefined : figures.p50Us / perftest.p50Us,
  };
}
