/** What engines of several processes counted, as one cluster's. */
import { mergeCopies, type ClusterTotals, type NodeTraffic } from '../replay/index.js';
import type { EngineTotals } from './protocol.js';

interface Counted {
  readonly engine: string;
  readonly node: string;
  readonly role: 'prefill' | 'decode';
  readonly totals: EngineTotals;
}

/** @param lostEngines that cannot say any more what they counted */
export function mergeTotals(all: readonly Counted[], lostEngines: readonly string[]): ClusterTotals {
  const of = (role: Counted['role']): EngineTotals['gpu'][] =>
    all.filter((one) => one.role === role).map(({ totals }) => totals.gpu);
  const sum = (count: (totals: EngineTotals) => number): number =>
    all.reduce((total, { totals }) => total + count(totals), 0);
  const transports = all.map(({ totals }) => totals.transport);
  return {
    carriedBy: {
      // All engines of a run are of one kind; the lesser one where they are not.
      transport:
        (['loopback', 'shared-memory'] as const).find((kind) =>
          transports.some(({ transport }) => transport === kind),
        ) ?? 'verbs',
      device: all
        .map(({ engine, totals: { transport } }) => `${engine}: ${transport.device ?? 'emulated-hbm'}`)
        .join(', '),
      trafficClass: transports[0]?.trafficClass ?? null,
      connections: sum(({ transport }) => transport.connections),
      rebuilt: sum(({ transport }) => transport.rebuilt),
      longestOutageMs: Math.max(0, ...transports.map(({ longestOutageMs }) => longestOutageMs)),
    },
    canaries: {
      checkedBytes: sum(({ canaries }) => canaries.checkedBytes),
      mismatchedBytes: sum(({ canaries }) => canaries.mismatchedBytes),
    },
    copies: mergeCopies(all.map(({ engine, totals }) => ({ engine, ...totals.copies }))),
    enginesCpuS: sum(({ cpuS }) => cpuS),
    nodes: all.map((one) => nodeOf(one, all)),
    lostEngines,
    prefillGpu: gpuOf(of('prefill')),
    decodeGpu: gpuOf(of('decode')),
    lostBlocks: sum(({ lostBlocks }) => lostBlocks),
    failedPrograms: sum(({ failedPrograms }) => failedPrograms),
    directIo: all.every(({ totals }) => totals.directIo),
    storageIo: all.every(({ totals }) => totals.storageIo === 'io_uring') ? 'io_uring' : 'thread_pool',
  };
}

function nodeOf({ engine, node, totals }: Counted, all: readonly Counted[]): NodeTraffic {
  const received = all
    .flatMap((one) => one.totals.transport.sentBytesTo)
    .filter(({ peer }) => peer === engine)
    .reduce((bytes, to) => bytes + to.bytes, 0);
  return {
    node,
    storageReadBytes: totals.storageReadBytes,
    storageWriteBytes: totals.storageWriteBytes,
    storageReadBusyS: totals.storageReadBusyS,
    computeEgressBytes: totals.transport.sentBytes,
    computeIngressBytes: received,
  };
}

function gpuOf(all: readonly EngineTotals['gpu'][]): ClusterTotals['prefillGpu'] {
  const sum = (of: (gpu: EngineTotals['gpu']) => number): number =>
    all.reduce((total, gpu) => total + of(gpu), 0);
  const kernels = sum((gpu) => gpu.kernels);
  return {
    kernels,
    checkedBytes: sum((gpu) => gpu.checkedBytes),
    mismatchedBytes: sum((gpu) => gpu.mismatchedBytes),
    overruns: sum((gpu) => gpu.overruns),
    latenessMeanUs: kernels === 0 ? 0 : sum((gpu) => gpu.latenessMeanUs * gpu.kernels) / kernels,
    latenessMaxUs: Math.max(0, ...all.map((gpu) => gpu.latenessMaxUs)),
  };
}
