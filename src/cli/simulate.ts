import { availableParallelism } from 'node:os';
import { Command, Option } from 'commander';
import type * as Simulator from '../simulator/index.js';
import type { SimulatedMode } from '../simulator/index.js';
import { writeReport } from '../report/index.js';
import { formatBytes, formatCount, formatPercent, renderTable } from '../telemetry/index.js';
import {
  addClusterOptions,
  addDataOptions,
  clusterOf,
  workloadFor,
  type ClusterFlags,
  type DataFlags,
} from './simulator-options.js';
import { checkCommand } from './simulate-check.js';
import {
  addExamples,
  addOutputOptions,
  contextOf,
  nonNegativeInteger,
  positiveInteger,
  positiveNumber,
} from './support.js';

/** `dualpath simulate`: clusters in virtual time. */
export function simulateCommand(): Command {
  const simulate = new Command('simulate').description(
    'clusters in virtual time, driven by the real scheduler',
  );
  addExamples(
    simulate,
    'dualpath simulate paper --quick --report paper.html',
    'dualpath simulate run 64k --prefill 2 --decode 4 --agents 1024',
  );
  return simulate.addCommand(paperCommand()).addCommand(runCommand()).addCommand(checkCommand());
}

interface PaperFlags {
  readonly quick?: boolean;
  readonly threads: number;
  readonly report?: string;
  readonly svg?: string;
}

function paperCommand(): Command {
  const paper = new Command('paper')
    .description("the DualPath paper's figures derived again, one row each, beside the published ones")
    .option('--quick', 'without the longest runs: under a minute on two free cores')
    .option('--threads <count>', 'worker threads', positiveInteger, availableParallelism())
    .option('--report <file>', 'write an HTML page with plots and all rows')
    .option('--svg <directory>', 'write the plots as SVG files');
  addOutputOptions(paper);
  addExamples(
    paper,
    'dualpath simulate paper --json',
    'dualpath simulate paper --quick --report paper.html --svg plots',
  );
  return paper.action(async (flags: PaperFlags, command: Command) => {
    const context = contextOf(command);
    const simulator = await import('../simulator/index.js');
    const isQuick = flags.quick === true;
    const progress = context.progress('simulating', simulator.paperTasks(isQuick).length);
    try {
      const result = await simulator.derivePaper({
        isQuick,
        threads: flags.threads,
        signal: context.signal,
        onDone: progress.update,
      });
      progress.stop();
      if (!result.complete) context.note('interrupted: rows without a value were not simulated');
      writeReport(simulator.paperReport(result), flags);
      context.result(result, () => paperText(simulator, result));
    } finally {
      progress.stop();
    }
  });
}

function paperText(simulator: typeof Simulator, result: Simulator.PaperResult): string {
  const { sections, rowHead, formatRow } = simulator;
  const tables = Object.entries(sections).map(([section, title]) =>
    renderTable({
      head: [title, ...rowHead.slice(1)],
      rows: result.rows.filter((row) => row.section === section).map(formatRow),
    }),
  );
  const { counts } = result;
  return (
    `${tables.join('\n')}\n${counts.fitted} fitted, ${counts.predicted} predicted, ${counts.arithmetic} arithmetic, ` +
    `${counts.structural} structural; ${result.withinTolerance} within tolerance, ${result.outsideTolerance} not; ` +
    `a simulation, not a measurement${result.complete ? '' : '; interrupted'}`
  );
}

interface RunFlags extends ClusterFlags, DataFlags {
  readonly mode: SimulatedMode;
  readonly prefill: number;
  readonly decode: number;
  readonly agents?: number;
  readonly aps?: number;
  readonly seconds: number;
  readonly seed: number;
  readonly cells?: number;
  readonly routing: Simulator.CellRouting;
  readonly slo: number;
}

function runCommand(): Command {
  const run = new Command('run')
    .description('one cluster under one workload: the data sets 32k, 48k and 64k, or a trace file')
    .argument('<workload>', '32k, 48k, 64k, or the path of a trace')
    .addOption(
      new Option('--mode <mode>', 'what the cluster does')
        .choices(['basic', 'layerwise', 'round-robin', 'dualpath', 'split', 'oracle'])
        .default('dualpath'),
    )
    .option('--prefill <nodes>', 'prefill nodes', nonNegativeInteger, 2)
    .option('--decode <nodes>', 'decode nodes', nonNegativeInteger, 4)
    .option('--agents <count>', 'agents that all come at once (offline)', positiveInteger)
    .option('--aps <rate>', 'agents a second, Poisson (online)', positiveNumber)
    .option('--seconds <seconds>', 'virtual time after which an online run ends', positiveInteger, 5400)
    .option('--seed <number>', 'of arrivals and ties', nonNegativeInteger, 1)
    .option(
      '--cells <count>',
      'share the nodes among so many cells with stores of their own, and a router in front',
      positiveInteger,
    )
    .addOption(
      new Option('--routing <policy>', "with --cells: who chooses a request's cell")
        .choices(['dualmap', 'late-lane', 'hash', 'least-loaded'])
        .default('dualmap'),
    )
    .option(
      '--slo <seconds>',
      'with --cells: time to first token that the router aims at',
      positiveNumber,
      4,
    );
  addClusterOptions(run);
  addDataOptions(run);
  addOutputOptions(run);
  run.addHelpText(
    'after',
    '\nWithout --agents and --aps a trace comes as recorded, a data set as 512 agents.\n',
  );
  addExamples(
    run,
    'dualpath simulate run 64k --agents 2048 --mode basic --json',
    'dualpath simulate run 64k --prefill 8 --decode 16 --cells 4 --routing dualmap --aps 1.6 --seconds 1800',
    'dualpath simulate run examples/traces/conversation-sample.jsonl --model qwen2.5-32b --prefill 1 --decode 1',
  );
  return run.action(runOne);
}

async function runOne(name: string, flags: RunFlags, command: Command): Promise<void> {
  const context = contextOf(command);
  const simulator = await import('../simulator/index.js');
  const workload = await workloadFor(simulator, name, flags, context);
  const plan = simulator.deployment({
    ...clusterOf(simulator, flags),
    mode: flags.mode,
    prefillNodes: flags.prefill,
    decodeNodes: flags.decode,
    seed: flags.seed,
  });
  const { cells, routing, slo: sloS } = flags;
  const settings = {
    ...simulator.settingsOf(plan, workload),
    ...(cells === undefined ? {} : { cells: { cells, routing, sloS } }),
  };
  const warnings = simulator.warningsOf(plan);
  for (const warning of warnings) context.note(`warning: ${warning}`);
  const arrivals = arrivalsOf(simulator, name, flags);
  const isOpen = arrivals.kind === 'poisson';
  const stop = isOpen
    ? { maxVirtualS: flags.seconds, warmupS: flags.seconds / 3, overloadTtftS: 600 }
    : { maxVirtualS: 1e8 };
  const progress = context.progress('simulating', 1000);
  try {
    const result = simulator.simulate(settings, workload, arrivals, stop, {
      signal: context.signal,
      onProgress: (share, virtualS) =>
        progress.update(
          Math.round(1000 * (isOpen ? virtualS / flags.seconds : share)),
          `${Math.round(virtualS)} s`,
        ),
    });
    progress.stop();
    const document = { workload: workload.name, cluster: clusterDocument(plan), warnings, ...result };
    context.result(document, () => runText(document));
  } finally {
    progress.stop();
  }
}

function arrivalsOf(simulator: typeof Simulator, name: string, flags: RunFlags): Simulator.Arrivals {
  if (flags.aps !== undefined) return { kind: 'poisson', agentsPerS: flags.aps, untilS: flags.seconds };
  if (flags.agents !== undefined) return { kind: 'together', agents: flags.agents };
  return simulator.isDataSet(name) ? { kind: 'together', agents: 512 } : { kind: 'trace' };
}

function clusterDocument({ hardware, model, mode, prefillNodes, decodeNodes }: Simulator.Deployment): object {
  return { hardware: hardware.name, model: model.name, mode, prefillNodes, decodeNodes };
}

function runText({
  workload,
  ...result
}: Simulator.RunResult & { readonly workload: string; readonly warnings: readonly string[] }): string {
  const s = (value: number): string => `${value.toFixed(3)} s`;
  const { ttftS, snic } = result;
  const table = renderTable({
    head: [`${workload}, ${result.mode}`, ''],
    rows: [
      ['ended', result.ending],
      ['virtual time', `${result.makespanS.toFixed(0)} s`],
      ['requests', formatCount(result.turnsEnded)],
      ['requests a second', result.requestsPerS.toFixed(1)],
      ['hits, of prompts', formatPercent(result.hitShare)],
      ['TTFT mean / p50 / p99', `${s(ttftS.mean)} / ${s(ttftS.p50)} / ${s(ttftS.p99)}`],
      ['TTST / TPOT', `${s(result.ttstMeanS)} / ${s(result.tpotMeanS)}`],
      ["an agent's time, mean", `${result.agentS.mean.toFixed(0)} s`],
      [
        'storage NICs, prefill / decode side',
        `${formatPercent(snic.prefillUtilization)} / ${formatPercent(snic.decodeUtilization)}`,
      ],
      ['prefill engines busy', formatPercent(result.prefillBusy)],
      ['sequences in a decode batch', result.decodeBatch.toFixed(1)],
      ['read / written', `${formatBytes(snic.readBytes)} / ${formatBytes(result.writtenBytes)}`],
    ],
  });
  const overload =
    result.ending === 'overloaded'
      ? '\nmore comes than the cluster can serve: the queue grows without end'
      : '';
  return `${table}${overload}\na simulation, not a measurement`;
}
