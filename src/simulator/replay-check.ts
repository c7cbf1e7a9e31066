/** The same small workload through `replay` and through the simulation, with the same rates. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { blockLayout, loadModel } from '../layout/index.js';
import { replayMode, type ClusterOptions, type ReplayMode } from '../replay/index.js';
import { LinearTimeModel } from '../scheduler/index.js';
import { settingsOfReplay } from './replay-settings.js';
import { simulate } from './run.js';
import { traceWorkload } from './workload.js';
import { BlockStore } from '../storage/index.js';
import { loadWorkload } from '../trace/index.js';

export interface CheckOptions {
  readonly mode: ReplayMode;
  readonly prefillNodes: number;
  readonly decodeNodes: number;
  readonly sessions: number;
  readonly turns: number;
  readonly snicBytesPerS: number;
}

export interface CheckRow {
  readonly name: string;
  readonly throughputRatio: number;
  readonly ttftRatio: number;
  readonly replay: { readonly elapsedS: number; readonly ttftP50S: number };
  readonly simulated: { readonly elapsedS: number; readonly ttftP50S: number };
  /** Throughput within 10 %, TTFT within 20 %. */
  readonly withinTolerance: boolean;
}

/** Ratios are simulated over real. */
export async function checkAgainstReplay(check: CheckOptions, signal?: AbortSignal): Promise<CheckRow> {
  const directory = mkdtempSync(join(tmpdir(), 'dualpath-check-'));
  try {
    const trace = join(directory, 'trace.jsonl');
    writeFileSync(trace, sessionLines(check));
    const workload = await loadWorkload(trace);
    const options = clusterOptions(check, join(directory, 'store'));
    const { fileBytes } = BlockStore.open({ path: join(directory, 'probe'), layout: options.layout }).file;
    const settings = settingsOfReplay(options, check.mode, fileBytes);
    const scripts = traceWorkload(workload, { blockTokens: options.layout.blockTokens, think: false });
    const simulated = simulate(settings, scripts, { kind: 'trace' }, { maxVirtualS: 1e6 });
    const real = await replayMode(workload, options, check.mode, signal === undefined ? {} : { signal });
    const ttfts = real.turns.map(({ ttftMs }) => ttftMs / 1000).sort((a, b) => a - b);
    const realP50S = ttfts[Math.floor(ttfts.length / 2)]!;
    const throughputRatio = real.elapsedS / simulated.makespanS;
    const ttftRatio = simulated.ttftS.p50 / realP50S;
    return {
      name: `${check.prefillNodes}P${check.decodeNodes}D ${check.mode}`,
      throughputRatio,
      ttftRatio,
      replay: { elapsedS: real.elapsedS, ttftP50S: realP50S },
      simulated: { elapsedS: simulated.makespanS, ttftP50S: simulated.ttftS.p50 },
      withinTolerance: Math.abs(throughputRatio - 1) <= 0.1 && Math.abs(ttftRatio - 1) <= 0.2,
    };
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

/** Sessions of different first prompts, so that they do not go in step; nothing shared between them. */
function sessionLines({ sessions, turns }: CheckOptions): string {
  return Array.from({ length: sessions }, (_, session) => {
    const appends = Array.from({ length: turns }, (__, turn) => ({
      append: turn === 0 ? 2048 + 512 * (session % 4) : 192 + 64 * ((session + turn) % 3),
      output: 8 + ((session * 5 + turn * 3) % 16),
    }));
    return `${JSON.stringify({ format: 'dualpath', version: 1, id: `s${session}`, turns: appends })}\n`;
  }).join('');
}

function clusterOptions(check: CheckOptions, storePath: string): ClusterOptions {
  return {
    layout: blockLayout(loadModel('demo'), { blockTokens: 64 }),
    prefillNodes: check.prefillNodes,
    decodeNodes: check.decodeNodes,
    enginesPerNode: 1,
    snicBytesPerS: check.snicBytesPerS,
    cnicBytesPerS: 8 * check.snicBytesPerS,
    prefillBufferBytes: 64 << 20,
    decodeBufferBytes: 128 << 20,
    prefillHbmBytes: 64 << 20,
    decodeHbmBytes: 128 << 20,
    windowLayers: 4,
    timeModel: new LinearTimeModel({
      baseS: 0.004,
      perNewTokenS: 16e-6,
      perAttentionTokenS: 4e-6,
      perAttentionPairS: 0,
    }),
    quotaS: 0.3,
    decodeStepS: 0.002,
    concurrency: Number.POSITIVE_INFINITY,
    storePath,
    seed: 1,
  };
}
