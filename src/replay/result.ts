/** What a replay came to, gathered from where the work was done. */
import type { GpuStatistics } from '../binding/index.js';
import type { DualPathError } from '../errors/index.js';
import type { CopyFacts } from '../traffic/index.js';
import type { Cluster } from './cluster.js';
import type { ReplayMode } from './options.js';
import type { StoreCheck } from './verify.js';

export interface TurnRecord {
  readonly request: string;
  /** CLOCK_MONOTONIC. */
  readonly submittedUs: number;
  readonly promptTokens: number;
  /** Found by the store's look-up. */
  readonly hitTokens: number;
  /** What the trace recorded, for comparison. */
  readonly traceHitTokens: number | null;
  readonly outputTokens: number;
  readonly ttftMs: number;
}

export interface NodeTraffic {
  readonly node: string;
  readonly storageReadBytes: number;
  readonly storageWriteBytes: number;
  readonly storageReadBusyS: number;
  readonly computeEgressBytes: number;
  readonly computeIngressBytes: number;
}

/** What carried bytes between engines, all of them together. */
export interface CarriedBy {
  readonly transport: 'loopback' | 'shared-memory' | 'verbs';
  /** RDMA devices, by engine; what stands for HBM where there are none. */
  readonly device: string;
  readonly trafficClass: string | null;
  readonly connections: number;
  readonly rebuilt: number;
  readonly longestOutageMs: number;
}

/** What copied KV between host memory and HBM, all engines together. */
export interface CopiedBy {
  readonly bytes: CopyFacts['bytes'];
  readonly refusedSteps: number;
  /** NICs, by engine; why there are none where there are none. */
  readonly nic: string;
}

export interface ClusterTotals {
  readonly copies: CopiedBy;
  readonly carriedBy: CarriedBy;
  /** Memory that nobody held, looked at for writes into it; null where nobody looked. */
  readonly canaries: { readonly checkedBytes: number; readonly mismatchedBytes: number } | null;
  /** Of processes beside this one. */
  readonly enginesCpuS: number;
  readonly nodes: readonly NodeTraffic[];
  /** Gone by the end, or before the run had begun; what they counted is missing. */
  readonly lostEngines: readonly string[];
  readonly prefillGpu: GpuTotals;
  readonly decodeGpu: GpuTotals;
  readonly lostBlocks: number;
  readonly failedPrograms: number;
  readonly directIo: boolean;
  readonly storageIo: 'io_uring' | 'thread_pool';
}

export interface GpuTotals {
  readonly kernels: number;
  readonly checkedBytes: number;
  readonly mismatchedBytes: number;
  readonly overruns: number;
  readonly latenessMeanUs: number;
  readonly latenessMaxUs: number;
}

export interface ModeResult extends ClusterTotals {
  readonly mode: ReplayMode;
  /** From the first submission to the end of the last turn. */
  readonly elapsedS: number;
  readonly cpuS: number;
  readonly eventLoopDelayP99Ms: number;
  readonly turns: readonly TurnRecord[];
  readonly store: StoreCheck;
  /** Why some block could not be stored, if any could not. */
  readonly persistError: DualPathError | undefined;
  /** Requests that were tried once more, with the side that was to read their hits at first, and why. */
  readonly retries: readonly { readonly request: string; readonly side: string; readonly cause: string }[];
}

export function collect(cluster: Cluster): ClusterTotals {
  const engines = [...cluster.prefill, ...cluster.decode];
  const statistics = engines.map(({ engine }) => engine.traffic.engine.statistics());
  return {
    carriedBy: {
      transport: 'loopback',
      device: 'emulated-hbm',
      trafficClass: null,
      connections: 0,
      rebuilt: 0,
      longestOutageMs: 0,
    },
    copies: mergeCopies(
      engines.map(({ engine }) => ({ engine: engine.name, ...engine.traffic.copies.facts() })),
    ),
    canaries: null,
    enginesCpuS: 0,
    nodes: nodesOf(engines),
    lostEngines: [],
    prefillGpu: gpuTotals(cluster.prefill.map(({ gpu }) => gpu.statistics())),
    decodeGpu: gpuTotals(cluster.decode.map(({ gpu }) => gpu.statistics())),
    lostBlocks: cluster.prefill.reduce((sum, { engine }) => sum + engine.hits.lostBlocks, 0),
    failedPrograms: statistics.reduce((sum, { failedPrograms }) => sum + failedPrograms, 0),
    directIo: statistics.every(({ directIo }) => directIo),
    storageIo: statistics.every(({ storageIo }) => storageIo === 'io_uring') ? 'io_uring' : 'thread_pool',
  };
}

/** What the links of every node carried so far. */
export function clusterTraffic({ prefill, decode }: Cluster): NodeTraffic[] {
  return nodesOf([...prefill, ...decode]);
}

export function mergeCopies(all: readonly (CopyFacts & { readonly engine: string })[]): CopiedBy {
  const sum = (of: (facts: CopyFacts) => number): number => all.reduce((total, one) => total + of(one), 0);
  const nics = all.map(
    ({ engine, device, emulated, reason }) =>
      `${engine}: ${device === null ? `none (${reason})` : `${device}${emulated ? ' (emulated)' : ''}, ${reason}`}`,
  );
  return {
    bytes: {
      nic: sum(({ bytes }) => bytes.nic),
      memcpy: sum(({ bytes }) => bytes.memcpy),
      cuda: sum(({ bytes }) => bytes.cuda),
    },
    refusedSteps: sum(({ refusedSteps }) => refusedSteps),
    nic: nics.join('; '),
  };
}

function nodesOf(
  engines: readonly (Cluster['prefill'][number] | Cluster['decode'][number])[],
): NodeTraffic[] {
  const names = [...new Set(engines.map(({ node }) => node))];
  return names.map((name) => {
    const links = engines.filter(({ node }) => node === name).map(({ engine }) => engine.traffic.links!);
    const storage = links[0]!; // one SNIC a node, shared by its engines
    const sum = (link: 'nicEgress' | 'nicIngress'): number =>
      links.reduce((total, engine) => total + engine[link].statistics().bytes, 0);
    return {
      node: name,
      storageReadBytes: storage.storageRead.statistics().bytes,
      storageWriteBytes: storage.storageWrite.statistics().bytes,
      storageReadBusyS: storage.storageRead.statistics().busyNs / 1e9,
      computeEgressBytes: sum('nicEgress'),
      computeIngressBytes: sum('nicIngress'),
    };
  });
}

function gpuTotals(all: readonly GpuStatistics[]): GpuTotals {
  const sum = (of: (statistics: GpuStatistics) => number): number =>
    all.reduce((total, s) => total + of(s), 0);
  const kernels = sum((s) => s.kernels);
  return {
    kernels,
    checkedBytes: sum((s) => s.checkedBytes),
    mismatchedBytes: sum((s) => s.mismatchedBytes),
    overruns: sum((s) => s.overruns),
    latenessMeanUs: kernels === 0 ? 0 : sum((s) => s.latenessSumNs) / kernels / 1000,
    latenessMaxUs: Math.max(0, ...all.map((s) => s.latenessMaxNs)) / 1000,
  };
}
