import { availableParallelism } from 'node:os';
import { Command } from 'commander';
import type { Plan } from '../simulator/index.js';
import { writeReport } from '../report/index.js';
import { formatBytes, formatPercent, renderTable } from '../telemetry/index.js';
import {
  addClusterOptions,
  addDataOptions,
  clusterOf,
  workloadFor,
  type ClusterFlags,
  type DataFlags,
} from './simulator-options.js';
import {
  addExamples,
  addOutputOptions,
  contextOf,
  nonNegativeInteger,
  positiveInteger,
  positiveNumber,
} from './support.js';

interface PlanFlags extends ClusterFlags, DataFlags {
  readonly nodes: number;
  readonly ttft: number;
  readonly tpot: number;
  readonly agents?: number;
  readonly seed: number;
  readonly threads: number;
  readonly report?: string;
  readonly svg?: string;
}

/** `dualpath plan`: how many prefill and decode nodes, what they serve, what becomes the bottleneck. */
export function planCommand(): Command {
  const plan = new Command('plan')
    .description('prefill and decode nodes for a workload: capacity, latencies, bottleneck, what to buy next')
    .argument('[workload]', '32k, 48k, 64k, or the path of a trace whose sessions come at random', '64k')
    .requiredOption('--nodes <count>', 'nodes in all', nonNegativeInteger)
    .option('--ttft <seconds>', 'objective: mean time to first token', positiveNumber, 4)
    .option('--tpot <seconds>', 'objective: mean time per output token', positiveNumber, 0.05)
    .option('--agents <count>', 'also: the time of an offline job of so many agents', positiveInteger)
    .option('--seed <number>', 'of arrivals and ties', nonNegativeInteger, 1)
    .option('--threads <count>', 'worker threads', positiveInteger, availableParallelism())
    .option('--report <file>', 'write an HTML page with plots')
    .option('--svg <directory>', 'write the plots as SVG files');
  addClusterOptions(plan);
  addDataOptions(plan);
  addOutputOptions(plan);
  addExamples(
    plan,
    'dualpath plan 64k --nodes 6 --json',
    'dualpath plan 48k --nodes 24 --hardware a100 --model ds-27b --report plan.html',
  );
  return plan.action(planOne);
}

async function planOne(name: string, flags: PlanFlags, command: Command): Promise<void> {
  const context = contextOf(command);
  const simulator = await import('../simulator/index.js');
  const workload = await workloadFor(simulator, name, flags, context);
  const { hardware, model } = simulator.deployment(clusterOf(simulator, flags));
  const progress = context.progress('simulating', 13);
  let done = 0;
  try {
    const plan = await simulator.planCluster({
      nodes: flags.nodes,
      hardware,
      model,
      workload,
      objectives: { ttftS: flags.ttft, tpotS: flags.tpot },
      agents: flags.agents,
      seed: flags.seed,
      threads: flags.threads,
      signal: context.signal,
      onDone: () => progress.update(++done),
    });
    progress.stop();
    const title = `${flags.nodes} nodes of ${hardware.name} for ${model.name}, ${workload.name}`;
    for (const warning of plan.warnings) context.note(`warning: ${warning}`);
    writeReport(simulator.planReport(plan, title), flags);
    context.result({ workload: workload.name, hardware: hardware.name, model: model.name, ...plan }, () =>
      planText(plan, title),
    );
  } finally {
    progress.stop();
  }
}

function planText(plan: Plan, title: string): string {
  const { best, expected, range, bufferBytesPerNode: buffer } = plan;
  const [low, high] = plan.capacityInterval;
  const rows: [string, string][] = [
    [
      'P/D without a bottleneck in networks or DRAM',
      `${range.lower.limit.toFixed(2)} to ${range.upper.limit.toFixed(2)}`,
    ],
    ['bounds that bind', `${range.lower.name}; ${range.upper.name}`],
    ['best division', `${best.prefillNodes}P${best.decodeNodes}D, ${plan.enginesPerNode} engines a node`],
    ['limited by', best.bottleneck],
    [
      'capacity, agents a second',
      `${plan.capacityAps.toPrecision(3)} (${low.toPrecision(3)} to ${high.toPrecision(3)})`,
    ],
    ['at 80 %: TTFT mean / p99', `${expected.ttftMeanS.toFixed(2)} / ${expected.ttftP99S.toFixed(2)} s`],
    ['TPOT', `${(1000 * expected.tpotS).toFixed(1)} ms`],
    ["an agent's time", `${expected.agentS.toFixed(0)} s`],
    ['working set', formatBytes(expected.workingSetBytes)],
    [
      'busiest storage NICs / prefill',
      `${formatPercent(expected.snicUtilization)} / ${formatPercent(expected.prefillBusy)}`,
    ],
    ['buffers a node, prefill / decode', `${formatBytes(buffer.prefill)} / ${formatBytes(buffer.decode)}`],
    ...(plan.job
      ? [[`job of ${plan.job.agents} agents`, `${plan.job.jctS.toFixed(0)} s`] as [string, string]]
      : []),
    ['to buy next', plan.buyNext],
  ];
  const changes = renderTable({
    head: ['what if', 'agents a second', 'ratio'],
    rows: plan.sensitivity.map(({ change, capacityAps, ratio }) => [
      change,
      capacityAps.toPrecision(3),
      ratio.toFixed(2),
    ]),
  });
  const outside = plan.isOutsideCalibration
    ? 'outside calibration: rates are scaled from DS 660B on Hopper; '
    : '';
  return `${renderTable({ head: [title, ''], rows })}\n${changes}\n${outside}a simulation, not a measurement`;
}
