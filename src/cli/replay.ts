import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command, Option } from 'commander';
import { blockLayout, loadModel, type BlockLayout } from '../layout/index.js';
import type * as Replay from '../replay/index.js';
import type { ClusterOptions, ReplayMode, ModeSummary } from '../replay/index.js';
import { LinearTimeModel } from '../scheduler/index.js';
import { formatBytesPerSecond } from '../telemetry/index.js';
import type { Workload } from '../trace/index.js';
import type { Address } from '../control/index.js';
import type { CopyWay } from '../traffic/index.js';
import { copiesOf, copyOption } from './copy-options.js';
import { addControlOptions, addressOf, type ControlFlags } from './control-options.js';
import { addLogOptions, logArguments, openCommandLog, type LogFlags } from './log-options.js';
import { limitsText, replayText } from './replay-text.js';
import { addWatchOptions, ReplayWatch, type WatchFlags } from './replay-watch.js';
import { remoteOf, type Remote } from './replay-remote.js';
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
  type CliContext,
  type WorkloadFlags,
} from './support.js';

/** src/replay loads the add-on's types, not the add-on; imported late so that --help stays quick. */
type ReplayModule = typeof Replay;
type LinearTime = ConstructorParameters<typeof LinearTimeModel>[0];

interface ReplayFlags extends WorkloadFlags, ControlFlags, LogFlags, WatchFlags {
  engines?: Address[];
  canaries?: boolean;
  distributed?: boolean;
  transport: 'rdma' | 'shared-memory';
  mode: ReplayMode[];
  prefill: number;
  decode: number;
  enginesPerNode: number;
  model: string;
  blockSize: number;
  snicRate?: number;
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
  copy: CopyWay;
  copyDevice?: string;
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
  replay
    .option(
      '--engines <addresses>',
      'engine processes to run on, host:port,...; see dualpath engine',
      listOf(addressOf),
    )
    .addOption(copyOption(['auto', 'nic', 'memcpy'], 'memcpy'))
    .option('--copy-device <name>', 'the RDMA device that copies (default: the nearest to the GPU)')
    .option(
      '--distributed',
      'start dualpath serve and a process of this host for each engine, and run on them',
    )
    .addOption(
      new Option('--transport <kind>', 'with --distributed: shared-memory (emulation) or rdma')
        .choices(['shared-memory', 'rdma'])
        .default('shared-memory'),
    )
    .option(
      '--canaries',
      'with --engines or --distributed: watch memory that nobody holds for writes into it',
    );
  addWatchOptions(replay);
  addLogOptions(replay);
  addControlOptions(replay);
  addOutputOptions(replay);
  replay.addHelpText(
    'after',
    `\nUnless given, --sessions, --turns, --scale and --max-context have the values of the default sample: ` +
      `${defaults.sessions} sessions, ${defaults.turns} turns, scale 1/32, ${defaults.maxContext} tokens.\n` +
      'HBM, GPUs and link rates are emulated, engines meet over the loopback transport, the disk is real.\n' +
      'With --engines the engines are processes of this or other hosts, meet over RDMA and have their own --copy; --store is then a folder that ' +
      'all of them have (each by its own --store).',
  );
  addExamples(
    replay,
    'dualpath replay examples/traces/agent-sessions-sample.jsonl',
    'dualpath replay trace.jsonl --prefill 1 --decode 2 --mode layerwise,dualpath,split --snic-rate 40MB/s --json',
    'dualpath replay trace.jsonl --mode dualpath --decisions decisions.jsonl',
    'dualpath replay trace.jsonl --distributed --prefill 1 --decode 2 --json',
    'dualpath replay trace.jsonl --engines 10.0.0.1:7001,10.0.0.2:7001 --token-file token --store /mnt/kv --json',
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
      "each node's storage NIC, a direction (default: 48MB/s; with --engines: not limited)",
      rateBytesPerSecond,
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
  const log = await openCommandLog(flags, context, { service: 'replay' });
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
  const replay = await import('../replay/index.js');
  const linear = linearTime(flags);
  const layout = blockLayout(loadModel(flags.model), { blockTokens: flags.blockSize });
  const remote = await remoteOf(flags, layout, linear, {
    args: logArguments(flags),
    said: (line) => log?.forward(line),
  });
  let watch: ReplayWatch | undefined;
  try {
    watch = await ReplayWatch.open(flags, context);
    const options = {
      ...clusterOptions(flags, layout, linear, workload.seed, remote),
      ...(log === undefined ? {} : { log: log.log }),
    };
    replay.checkWorkload(workload, options, flags.mode);
    context.note(limitsText(workload, options, replay.storeBytesNeeded(workload, options), remote?.text));
    const summaries = await replayModes(workload, options, flags, context, replay, remote, watch);
    await watch.report(summaries, report(workload, options, summaries, context, replay, remote));
  } finally {
    await remote?.close();
    await watch?.close();
  }
}

async function replayModes(
  workload: Workload,
  options: ClusterOptions,
  flags: ReplayFlags,
  context: CliContext,
  replay: ReplayModule,
  remote: Remote | undefined,
  watch: ReplayWatch,
): Promise<Map<ReplayMode, ModeSummary>> {
  const summaries = new Map<ReplayMode, ModeSummary>();
  const turns = workload.sessions.reduce((sum, session) => sum + session.turns.length, 0);
  for (const mode of new Set(flags.mode)) {
    const progress = context.progress(mode.padEnd(9), turns);
    const started = performance.now();
    let tokens = 0;
    try {
      const result = await replay.replayMode(
        workload,
        {
          ...options,
          storePath: join(flags.store, `dualpath-replay-${process.pid}-${mode}`),
          ...(await watch.options(mode)),
        },
        mode,
        {
          signal: context.signal,
          ...watch.hooks,
          ...(remote === undefined ? {} : { openCluster: remote.open }),
          onTurn: (done, turn) => {
            watch.turn(turn);
            tokens += turn.promptTokens;
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
      watch.modeEnded();
      progress.stop();
    }
  }
  return summaries;
}

function report(
  workload: Workload,
  options: ClusterOptions,
  summaries: ReadonlyMap<ReplayMode, ModeSummary>,
  context: ReturnType<typeof contextOf>,
  replay: ReplayModule,
  remote: Remote | undefined,
): object {
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
      ...(remote === undefined ? {} : { engines: remote.engines }),
    },
    modes: Object.fromEntries(summaries),
    speedupBaseline: baseline,
    speedup,
    storageLimit: replay.storageLimit(options),
    cpuPercent: Math.max(...all.map(({ cpuPercent }) => cpuPercent)),
    valid: paced.every(({ valid }) => valid),
  };
  context.result(document, () => replayText(summaries, speedup, document));
  const isWrong = ({ mismatchedBytes, persistError, canaries }: ModeSummary): boolean =>
    mismatchedBytes > 0 || persistError !== null || (canaries?.mismatchedBytes ?? 0) > 0;
  if (all.some(isWrong)) context.fail();
  return document;
}

/** Of emulated computing. */
function linearTime(flags: ReplayFlags): LinearTime {
  return {
    baseS: 0.001,
    perNewTokenS: 0.8 / flags.prefillRate,
    perAttentionTokenS: 0.2 / flags.prefillRate,
    perAttentionPairS: 0,
  };
}

function clusterOptions(
  flags: ReplayFlags,
  layout: BlockLayout,
  linear: LinearTime,
  seed: number,
  remote: Remote | undefined,
): ClusterOptions {
  const snicBytesPerS = flags.snicRate ?? (flags.engines === undefined ? 48e6 : 0);
  const count = (role: 'prefill' | 'decode'): number =>
    remote?.engines.filter((engine) => engine.role === role).length ?? flags[role];
  return {
    layout,
    prefillNodes: count('prefill'),
    decodeNodes: count('decode'),
    enginesPerNode: remote === undefined ? flags.enginesPerNode : 1,
    snicBytesPerS,
    cnicBytesPerS: flags.cnicRate ?? (remote === undefined ? 8 * snicBytesPerS : 0),
    prefillBufferBytes: flags.prefillBuffer,
    decodeBufferBytes: flags.decodeBuffer,
    prefillHbmBytes: flags.prefillHbm,
    decodeHbmBytes: flags.decodeHbm,
    windowLayers: flags.windowLayers,
    timeModel: new LinearTimeModel(linear),
    quotaS: flags.quota / 1000,
    decodeStepS: flags.decodeStep / 1e6,
    concurrency: flags.concurrency ?? Number.POSITIVE_INFINITY,
    storePath: join(flags.store, `dualpath-replay-${process.pid}`),
    copies: copiesOf(flags),
    seed,
  };
}
