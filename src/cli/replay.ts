import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command, Option } from 'commander';
import { blockLayout, loadModel } from '../layout/index.js';
import type * as Replay from '../replay/index.js';
import type { ClusterOptions, ReplayMode, ModeSummary } from '../replay/index.js';
import { LinearTimeModel } from '../scheduler/index.js';
import { formatBytesPerSecond } from '../telemetry/index.js';
import type { Workload } from '../trace/index.js';
import { limitsText, replayText } from './replay-text.js';
import {
  addExamples,
  addOutputOptions,
  addWorkloadOptions,
  contextOf,
  listOf,
  loadWorkloadWithProgress,
  nonNegativeInteger,
  positiveInteger,
  positiveNumber,
  rateBytesPerSecond,
  sizeBytes,
  type WorkloadFlags,
} from './support.js';

/** src/replay loads the add-on's types, not the add-on; imported late so that --help stays quick. */
type ReplayModule = typeof Replay;

interface ReplayFlags extends WorkloadFlags {
  mode: ReplayMode[];
  prefill: number;
  decode: number;
  enginesPerNode: number;
  model: string;
  blockSize: number;
  snicRate: number;
  cnicRate?: number;
  prefillBuffer: number;
  decodeBuffer: number;
  prefillHbm: number;
  decodeHbm: number;
  windowLayers: number;
  prefillRate: number;
  quota: number;
  decodeStep: number;
  concurrency?: number;
  store: string;
}

const modeNames = [
  'basic',
  'layerwise',
  'dualpath',
  'split',
  'oracle',
] as const satisfies readonly ReplayMode[];

/** The default sample: what a laptop moves in under a minute a mode, storage-bound, within 4 GB. */
const defaults = { sessions: 20, turns: 40, scale: 1 / 32, maxContext: 262_144 };

/** `dualpath replay`: the main job. */
export function replayCommand(): Command {
  const replay = new Command('replay')
    .description('replay agent sessions through an emulated cluster, every byte verified')
    .argument('<trace>', 'the trace, JSON lines, gzip-compressed or not');
  addWorkloadOptions(replay);
  addClusterOptions(replay);
  addOutputOptions(replay);
  replay.addHelpText(
    'after',
    `\nUnless given, --sessions, --turns, --scale and --max-context have the values of the default sample: ` +
      `${defaults.sessions} sessions, ${defaults.turns} turns, scale 1/32, ${defaults.maxContext} tokens.\n` +
      'HBM, GPUs and link rates are emulated, engines meet over the loopback transport, the disk is real.',
  );
  addExamples(
    replay,
    'dualpath replay examples/traces/agent-sessions-sample.jsonl',
    'dualpath replay trace.jsonl --prefill 1 --decode 2 --mode layerwise,dualpath,split --snic-rate 40MB/s --json',
  );
  return replay.action(runReplay);
}

function addClusterOptions(command: Command): void {
  command
    .addOption(
      new Option('--mode <modes>', `comma-separated: ${modeNames.join(', ')}`)
        .argParser(listOf(modeOf))
        .default(['layerwise', 'dualpath', 'split'], 'layerwise,dualpath,split'),
    )
    .option('--prefill <nodes>', 'prefill nodes', positiveInteger, 1)
    .option('--decode <nodes>', 'decode nodes', positiveInteger, 1)
    .option('--engines-per-node <count>', 'engines (emulated GPUs) of a node', positiveInteger, 1)
    .option('--model <name>', 'preset, or a JSON file with a model', 'demo')
    .option('--block-size <tokens>', 'tokens of a block', positiveInteger, 64)
    .option(
      '--snic-rate <rate>',
      "each node's storage NIC, a direction (default: 48MB/s)",
      rateBytesPerSecond,
      48e6,
    )
    .option(
      '--cnic-rate <rate>',
      "each engine's compute NIC, a direction (default: 8 times the SNIC's)",
      rateBytesPerSecond,
    )
    .option('--prefill-buffer <size>', 'PE buffer of an engine (default: 128MiB)', sizeBytes, 128 << 20)
    .option('--decode-buffer <size>', 'DE buffer of an engine (default: 256MiB)', sizeBytes, 256 << 20)
    .option(
      '--prefill-hbm <size>',
      'HBM for KV under way on a prefill engine (default: 128MiB)',
      sizeBytes,
      128 << 20,
    )
    .option(
      '--decode-hbm <size>',
      'HBM for sequences on a decode engine (default: 256MiB)',
      sizeBytes,
      256 << 20,
    )
    .option('--window-layers <count>', 'layers of staging in layerwise prefill', positiveInteger, 4)
    .option(
      '--prefill-rate <tokens>',
      'tokens a second that a prefill engine computes',
      positiveNumber,
      500_000,
    )
    .option('--quota <ms>', 'compute quota: attention time of a forward batch', positiveNumber, 300)
    .option('--decode-step <us>', 'time of a decode step', nonNegativeInteger, 1000)
    .option('--concurrency <sessions>', 'sessions at once (default: all)', positiveInteger)
    .option('--store <directory>', 'where the block store is made, and removed after each mode', tmpdir());
}

function modeOf(text: string): ReplayMode {
  const mode = modeNames.find((name) => name === text);
  if (mode !== undefined) return mode;
  throw new Error(`'${text}' is no mode; choose from ${modeNames.join(', ')}`);
}

async function runReplay(trace: string, flags: ReplayFlags, command: Command): Promise<void> {
  const context = contextOf(command);
  const workload = await loadWorkloadWithProgress(
    trace,
    {
      ...flags,
      sessions: flags.sessions ?? defaults.sessions,
      turns: flags.turns ?? defaults.turns,
      scale: flags.scale ?? defaults.scale,
      maxContext: flags.maxContext ?? defaults.maxContext,
    },
    context,
  );
  const options = clusterOptions(flags, workload.seed);
  const replay = await import('../replay/index.js');
  replay.checkWorkload(workload, options, flags.mode);
  context.note(limitsText(workload, options, replay.storeBytesNeeded(workload, options)));
  const summaries = new Map<ReplayMode, ModeSummary>();
  for (const mode of new Set(flags.mode)) {
    const turns = workload.sessions.reduce((sum, session) => sum + session.turns.length, 0);
    const progress = context.progress(mode.padEnd(9), turns);
    const started = performance.now();
    let tokens = 0;
    try {
      const result = await replay.replayMode(
        workload,
        { ...options, storePath: join(flags.store, `dualpath-replay-${process.pid}-${mode}`) },
        mode,
        {
          signal: context.signal,
          onTurn: (done, promptTokens) => {
            tokens += promptTokens;
            const perS = (tokens / (performance.now() - started)) * 1000;
            progress.update(
              done,
              `${Math.round(perS)} tokens/s, KV ${formatBytesPerSecond(perS * options.layout.bytesPerToken)}`,
            );
          },
        },
      );
      summaries.set(mode, replay.summarize(result, availableParallelism()));
    } finally {
      progress.stop();
    }
  }
  report(workload, options, summaries, context, replay);
}

function report(
  workload: Workload,
  options: ClusterOptions,
  summaries: ReadonlyMap<ReplayMode, ModeSummary>,
  context: ReturnType<typeof contextOf>,
  replay: ReplayModule,
): void {
  const modes = [...summaries.keys()];
  const baseline = replay.baselineOf(modes);
  const base = summaries.get(baseline)!;
  const speedup = Object.fromEntries(
    [...summaries].map(([mode, { elapsedS }]) => [mode, base.elapsedS / elapsedS]),
  );
  const all = [...summaries.values()];
  // Oracle is bound by nothing that is emulated: it runs as fast as the processors let it.
  const paced = [...summaries].filter(([mode]) => mode !== 'oracle').map(([, summary]) => summary);
  const document = {
    trace: {
      path: workload.path,
      sessions: workload.sessions.length,
      scale: workload.scale,
      seed: workload.seed,
    },
    cluster: {
      prefillNodes: options.prefillNodes,
      decodeNodes: options.decodeNodes,
      enginesPerNode: options.enginesPerNode,
      model: options.layout.model.name,
      blockTokens: options.layout.blockTokens,
      snicBytesPerS: options.snicBytesPerS,
      cnicBytesPerS: options.cnicBytesPerS,
    },
    modes: Object.fromEntries(summaries),
    speedupBaseline: baseline,
    speedup,
    storageLimit: replay.storageLimit(options),
    cpuPercent: Math.max(...all.map(({ cpuPercent }) => cpuPercent)),
    valid: paced.every(({ valid }) => valid),
  };
  context.result(document, () => replayText(summaries, speedup, document));
  if (all.some(({ mismatchedBytes, persistError }) => mismatchedBytes > 0 || persistError !== null))
    context.fail();
}

function clusterOptions(flags: ReplayFlags, seed: number): ClusterOptions {
  return {
    layout: blockLayout(loadModel(flags.model), { blockTokens: flags.blockSize }),
    prefillNodes: flags.prefill,
    decodeNodes: flags.decode,
    enginesPerNode: flags.enginesPerNode,
    snicBytesPerS: flags.snicRate,
    cnicBytesPerS: flags.cnicRate ?? 8 * flags.snicRate,
    prefillBufferBytes: flags.prefillBuffer,
    decodeBufferBytes: flags.decodeBuffer,
    prefillHbmBytes: flags.prefillHbm,
    decodeHbmBytes: flags.decodeHbm,
    windowLayers: flags.windowLayers,
    timeModel: new LinearTimeModel({
      baseS: 0.001,
      perNewTokenS: 0.8 / flags.prefillRate,
      perAttentionTokenS: 0.2 / flags.prefillRate,
      perAttentionPairS: 0,
    }),
    quotaS: flags.quota / 1000,
    decodeStepS: flags.decodeStep / 1e6,
    concurrency: flags.concurrency ?? Number.POSITIVE_INFINITY,
    storePath: join(flags.store, `dualpath-replay-${process.pid}`),
    seed,
  };
}
