/** The figures of a replay that people compare, for the table and the JSON document alike. */
import type { CopiedBy, ModeResult } from './result.js';
import type { ClusterOptions, ReplayMode } from './options.js';

export interface ModeSummary {
  readonly promptTokensPerS: number;
  readonly elapsedS: number;
  readonly turns: number;
  readonly promptTokens: number;
  /** Prompt tokens found in the store, and what the trace says was cached (null where it does not). */
  readonly hitRate: number;
  readonly traceHitRate: number | null;
  readonly ttftMs: { readonly p50: number; readonly p90: number; readonly p99: number };
  readonly storageReadBytes: Readonly<Record<string, number>>;
  readonly storageWriteBytes: Readonly<Record<string, number>>;
  readonly computeEgressBytes: Readonly<Record<string, number>>;
  readonly computeIngressBytes: Readonly<Record<string, number>>;
  /** Busiest storage link against the mean of all nodes; null when nothing was read. */
  readonly snicMaxOverMean: number | null;
  /** Share of the run that each node's storage link was reading. */
  readonly snicReadUtilization: Readonly<Record<string, number>>;
  readonly verifiedBytes: number;
  readonly verified: {
    readonly prefillHbmBytes: number;
    readonly decodeHbmBytes: number;
    readonly storeBytes: number;
  };
  readonly mismatchedBytes: number;
  readonly lostBlocks: number;
  readonly failedPrograms: number;
  readonly persistError: string | null;
  readonly cpuPercent: number;
  /** The processors had room: below 80 % of all cores. */
  readonly valid: boolean;
  readonly eventLoopDelayP99Ms: number;
  readonly kernelLatenessMeanUs: number;
  readonly kernelOverruns: number;
  /** What carried bytes between engines. */
  readonly transport: 'loopback' | 'shared-memory' | 'verbs';
  readonly device: string;
  readonly trafficClass: string | null;
  readonly connections: number;
  readonly rebuiltConnections: number;
  readonly longestOutageMs: number;
  /** Tried again, at first on the other read path, and why; the first 100. */
  readonly retries: number;
  readonly retryCauses: readonly string[];
  readonly lostEngines: readonly string[];
  readonly canaries: { readonly checkedBytes: number; readonly mismatchedBytes: number } | null;
  /** What carried copies between host memory and HBM. */
  readonly copies: CopiedBy;
  readonly storage: `${'io_uring' | 'thread_pool'}, ${'O_DIRECT' | 'buffered'}`;
}

/** Above this share of all cores the processors, not the emulated links, may have set the pace. */
export const maxCpuPercent = 80;

export function summarize(result: ModeResult, cores: number): ModeSummary {
  const sum = (of: (turn: ModeResult['turns'][number]) => number): number =>
    result.turns.reduce((total, turn) => total + of(turn), 0);
  const byNode = (of: (node: ModeResult['nodes'][number]) => number): Record<string, number> =>
    Object.fromEntries(result.nodes.map((node) => [node.node, of(node)]));
  const promptTokens = sum(({ promptTokens: tokens }) => tokens);
  const recorded = result.turns.every(({ traceHitTokens }) => traceHitTokens !== null);
  const reads = result.nodes.map(({ storageReadBytes }) => storageReadBytes);
  const meanRead = reads.reduce((total, bytes) => total + bytes, 0) / reads.length;
  const verified = {
    prefillHbmBytes: result.prefillGpu.checkedBytes,
    decodeHbmBytes: result.decodeGpu.checkedBytes,
    storeBytes: result.store.checkedBytes,
  };
  const { carriedBy } = result;
  const cpuPercent = (result.cpuS / result.elapsedS / cores) * 100;
  return {
    promptTokensPerS: promptTokens / result.elapsedS,
    elapsedS: result.elapsedS,
    turns: result.turns.length,
    promptTokens,
    hitRate: sum(({ hitTokens }) => hitTokens) / promptTokens,
    traceHitRate: recorded ? sum(({ traceHitTokens }) => traceHitTokens ?? 0) / promptTokens : null,
    ttftMs: ttft(result.turns.map(({ ttftMs }) => ttftMs)),
    storageReadBytes: byNode(({ storageReadBytes }) => storageReadBytes),
    storageWriteBytes: byNode(({ storageWriteBytes }) => storageWriteBytes),
    computeEgressBytes: byNode(({ computeEgressBytes }) => computeEgressBytes),
    computeIngressBytes: byNode(({ computeIngressBytes }) => computeIngressBytes),
    snicMaxOverMean: meanRead === 0 ? null : Math.max(...reads) / meanRead,
    snicReadUtilization: byNode(({ storageReadBusyS }) => storageReadBusyS / result.elapsedS),
    verifiedBytes: verified.prefillHbmBytes + verified.decodeHbmBytes + verified.storeBytes,
    verified,
    mismatchedBytes:
      result.prefillGpu.mismatchedBytes + result.decodeGpu.mismatchedBytes + result.store.mismatchedBytes,
    lostBlocks: result.lostBlocks,
    failedPrograms: result.failedPrograms,
    persistError: result.persistError?.message ?? null,
    cpuPercent,
    valid: cpuPercent < maxCpuPercent,
    eventLoopDelayP99Ms: result.eventLoopDelayP99Ms,
    kernelLatenessMeanUs: result.prefillGpu.latenessMeanUs,
    kernelOverruns: result.prefillGpu.overruns,
    transport: carriedBy.transport,
    device: carriedBy.device,
    trafficClass: carriedBy.trafficClass,
    connections: carriedBy.connections,
    rebuiltConnections: carriedBy.rebuilt,
    longestOutageMs: carriedBy.longestOutageMs,
    retries: result.retries.length,
    retryCauses: [...new Set(result.retries.map(({ side, cause }) => `read by ${side}: ${cause}`))].slice(
      0,
      100,
    ),
    lostEngines: result.lostEngines,
    canaries: result.canaries,
    copies: result.copies,
    storage: `${result.storageIo}, ${result.directIo ? 'O_DIRECT' : 'buffered'}`,
  };
}

function ttft(values: readonly number[]): ModeSummary['ttftMs'] {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (q: number): number => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? 0;
  return { p50: at(0.5), p90: at(0.9), p99: at(0.99) };
}

/** The mode that speed-ups are against: Basic + layerwise, or the nearest one that was run. */
export function baselineOf(modes: readonly ReplayMode[]): ReplayMode {
  return (['layerwise', 'basic'] as const).find((mode) => modes.includes(mode)) ?? modes[0]!;
}

/** What reading on all nodes instead of the prefill nodes can gain at most, when storage is all that counts. */
export function storageLimit({ prefillNodes, decodeNodes }: ClusterOptions): number {
  return (prefillNodes + decodeNodes) / prefillNodes;
}
