/** What `dualpath replay` tells a person: what was emulated and limited before, the table after. */
import { type ClusterOptions, type ModeSummary, type ReplayMode } from '../replay/index.js';
import {
  formatBytes,
  formatBytesPerSecond,
  formatCount,
  formatPercent,
  renderTable,
} from '../telemetry/index.js';
import type { Workload } from '../trace/index.js';

export function limitsText(
  workload: Workload,
  options: ClusterOptions,
  storeBytes: number,
  engines?: string,
): string {
  const { layout } = options;
  const turns = workload.sessions.reduce((sum, session) => sum + session.turns.length, 0);
  const tokens = workload.sessions
    .flatMap((session) => session.turns)
    .reduce((sum, turn) => sum + turn.promptTokens, 0);
  const cnic = options.cnicBytesPerS === 0 ? 'not limited' : formatBytesPerSecond(options.cnicBytesPerS);
  return [
    `${formatCount(workload.sessions.length)} sessions, ${formatCount(turns)} turns, ${formatCount(tokens)} prompt tokens at ` +
      `scale ${Number(workload.scale.toPrecision(4))}; model ${layout.model.name}, ${formatCount(layout.bytesPerToken)} B/token, ` +
      `blocks of ${layout.blockTokens} tokens; at most ${formatBytes(storeBytes)} stored`,
    engines ??
      `${options.prefillNodes} prefill and ${options.decodeNodes} decode nodes of ${options.enginesPerNode}; emulated: HBM, GPUs, and on each ` +
        `node a storage NIC of ${formatBytesPerSecond(options.snicBytesPerS)} a direction (all share this machine's disk), ` +
        `on each engine a compute NIC of ${cnic}; transport: loopback`,
  ].join('\n');
}

interface Totals {
  readonly speedupBaseline: ReplayMode;
  readonly cpuPercent: number;
  readonly valid: boolean;
  readonly storageLimit: number;
}

export function replayText(
  summaries: ReadonlyMap<ReplayMode, ModeSummary>,
  speedup: Readonly<Record<string, number>>,
  totals: Totals,
): string {
  const rows = [...summaries].map(([mode, summary]) => {
    const factor = speedup[mode]!;
    const dual = mode === 'dualpath' || mode === 'split';
    return [
      mode,
      `${summary.elapsedS.toFixed(1)} s`,
      formatCount(Math.round(summary.promptTokensPerS)),
      `${formatPercent(summary.hitRate)}${summary.traceHitRate === null ? '' : ` (${formatPercent(summary.traceHitRate)})`}`,
      [summary.ttftMs.p50, summary.ttftMs.p90, summary.ttftMs.p99].map((ms) => ms.toFixed(0)).join(' / '),
      summary.snicMaxOverMean === null ? '-' : summary.snicMaxOverMean.toFixed(2),
      `${factor.toFixed(2)}x`,
      dual ? formatPercent(factor / totals.storageLimit) : '-',
      formatBytes(summary.verifiedBytes),
      formatCount(summary.mismatchedBytes),
    ];
  });
  return [
    renderTable({
      head: [
        'mode',
        'makespan',
        'tokens/s',
        'hits (trace)',
        'TTFT p50/p90/p99 ms',
        'SNIC max/mean',
        'speed-up',
        `of limit ${totals.storageLimit.toFixed(2)}x`,
        'verified',
        'mismatched',
      ],
      rows,
    }),
    linkTable(summaries),
    verdict(summaries, totals),
  ].join('\n');
}

function linkTable(summaries: ReadonlyMap<ReplayMode, ModeSummary>): string {
  const rows: string[][] = [];
  for (const [mode, summary] of summaries) {
    for (const [node, read] of Object.entries(summary.storageReadBytes)) {
      rows.push([
        mode,
        node,
        formatBytes(read),
        formatPercent(summary.snicReadUtilization[node]!),
        formatBytes(summary.storageWriteBytes[node]!),
        formatBytes(summary.computeEgressBytes[node]!),
        formatBytes(summary.computeIngressBytes[node]!),
      ]);
    }
  }
  return renderTable({
    head: ['mode', 'node', 'SNIC read', 'of the run', 'SNIC written', 'CNIC out', 'CNIC in'],
    rows,
  });
}

function verdict(summaries: ReadonlyMap<ReplayMode, ModeSummary>, totals: Totals): string {
  const [{ transport, device, trafficClass, storage }] = [...summaries.values()] as [ModeSummary];
  const carried =
    transport === 'loopback'
      ? 'emulated HBM, loopback transport'
      : `emulated HBM, ${device}, ${trafficClass}`;
  const lines = [
    `speed-up against ${totals.speedupBaseline}, over whole runs; ${carried}, ` +
      `${storage}; processors busy at most ${totals.cpuPercent.toFixed(0)} %`,
  ];
  if (!totals.valid) {
    lines.push(
      'NOT VALID as a speed-up: the processors were above 80 %, not the links alone set the pace; lower --snic-rate',
    );
  }
  for (const [mode, summary] of summaries) {
    const { mismatchedBytes, persistError, lostBlocks, canaries, copies } = summary;
    const { retries, retryCauses, lostEngines } = summary;
    const { nic, memcpy, cuda } = copies.bytes;
    lines.push(
      `copies in ${mode}: ${formatBytes(nic)} by the NIC, ${formatBytes(memcpy)} by memcpy, ${formatBytes(cuda)} by CUDA; ${copies.nic}`,
    );
    if (mismatchedBytes > 0) lines.push(`WRONG BYTES in ${mode}: ${formatCount(mismatchedBytes)}`);
    if (persistError !== null) lines.push(`NOT EVERYTHING WAS STORED in ${mode}: ${persistError}`);
    if ((canaries?.mismatchedBytes ?? 0) > 0)
      lines.push(`WRITES INTO FREE MEMORY in ${mode}: ${formatCount(canaries!.mismatchedBytes)} bytes`);
    if (lostEngines.length > 0) lines.push(`${mode}: engines were lost: ${lostEngines.join(', ')}`);
    if (retries > 0)
      lines.push(
        `${mode}: ${formatCount(retries)} times a request was tried again: ${retryCauses.join('; ')}`,
      );
    if (lostBlocks > 0)
      lines.push(
        `${mode}: ${formatCount(lostBlocks)} blocks were found but could not be read, and were computed anew`,
      );
  }
  return lines.join('\n');
}
