import { Command } from 'commander';
import type { ControlBenchResult } from '../bench/index.js';
import { formatCount, formatPercent, renderTable } from '../telemetry/index.js';
import { addExamples, addOutputOptions, contextOf, positiveInteger, positiveNumber } from './support.js';

interface Flags {
  readonly engines: number;
  readonly groupEngines: number;
  readonly clients: number;
  readonly outstanding: number;
  readonly rate: number;
  readonly seconds: number;
}

/** `dualpath bench control`: requests through the scheduler's service. */
export function controlCommand(): Command {
  const command = new Command('control')
    .description('requests a second through the scheduler over gRPC on loopback, and what they wait there')
    .option('--engines <count>', 'engines; a third of them are PEs', positiveInteger, 144)
    .option('--group-engines <count>', 'engines that fetch together', positiveInteger, 8)
    .option('--clients <count>', 'front ends', positiveInteger, 4)
    .option('--outstanding <requests>', 'under way where as many as go are measured', positiveInteger, 1024)
    .option('--rate <requests>', 'a second, where latency is measured', positiveInteger, 5000)
    .option('--seconds <seconds>', 'of each of five samples', positiveNumber, 3);
  addOutputOptions(command);
  addExamples(command, 'dualpath bench control --json');
  return command.action(async (flags: Flags, self: Command) => {
    const context = contextOf(self);
    const { benchControl } = await import('../bench/index.js');
    const { rate: perS, ...rest } = flags;
    const result = await benchControl({
      ...rest,
      perS,
      signal: context.signal,
      onProgress: (step) => context.note(`measuring: ${step}`),
    });
    if (result.failed > 0) context.fail();
    context.result(result, () => controlText(result));
  });
}

function controlText(result: ControlBenchResult): string {
  const { atRate, samplesPerS, schedulerBusyShare } = result;
  const count = (value: number): string => formatCount(Math.round(value));
  const latency = atRate.map(({ p50Ms, p99Ms }) => `${p50Ms.toFixed(1)} / ${p99Ms.toFixed(1)}`).join(', ');
  return renderTable({
    head: [`${result.engines} engines, ${result.groups} groups, ${result.clients} front ends`, ''],
    rows: [
      ['submitted, scheduled, completed a second (median)', count(result.requestsPerS)],
      ['of each sample', samplesPerS.map(count).join(', ')],
      [`at ${count(atRate[0]?.ratePerS ?? 0)} a second: p50 / p99, ms`, latency],
      ['p99, median', `${result.p99Ms.toFixed(1)} ms`],
      [
        "the scheduler's thread busy, at most / at the rate",
        `${formatPercent(schedulerBusyShare.most)} / ${formatPercent(schedulerBusyShare.atRate)}`,
      ],
    ],
  });
}
