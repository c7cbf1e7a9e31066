import { Command } from 'commander';
import type { SchedulerBenchResult } from '../bench/index.js';
import { formatCount, formatPercent, renderTable } from '../telemetry/index.js';
import {
  addExamples,
  addOutputOptions,
  contextOf,
  listOf,
  positiveInteger,
  positiveNumber,
} from './support.js';

interface Flags {
  readonly engines: number[];
  readonly groupEngines: number;
  readonly seconds: number;
}

/** `dualpath bench scheduler`: what an assignment costs, by the size of the cluster. */
export function schedulerCommand(): Command {
  const command = new Command('scheduler')
    .description('assignments a second of the request scheduler on one core, and its memory')
    .option(
      '--engines <counts>',
      'engines of each run, comma-separated; a third of them are PEs (default: 8,144,1152,10000)',
      listOf(positiveInteger),
      [8, 144, 1152, 10_000],
    )
    .option('--group-engines <count>', 'engines that fetch together', positiveInteger, 8)
    .option('--seconds <seconds>', 'of each of five samples a size', positiveNumber, 1);
  addOutputOptions(command);
  addExamples(command, 'dualpath bench scheduler --engines 1152 --json');
  return command.action(async (flags: Flags, self: Command) => {
    const context = contextOf(self);
    const { benchScheduler } = await import('../bench/index.js');
    const result = benchScheduler({
      engines: flags.engines,
      groupEngines: flags.groupEngines,
      sampleS: flags.seconds,
      signal: context.signal,
      onProgress: (step) => context.note(`measuring: ${step}`),
    });
    context.result(result, () => schedulerText(result));
  });
}

function schedulerText(result: SchedulerBenchResult): string {
  const rows = result.sizes.map((size) => [
    formatCount(size.engines),
    formatCount(size.groups),
    formatCount(Math.round(size.assignmentsPerS)),
    size.usPerAssignment.toFixed(2),
    `${size.fetchP50Us.toFixed(1)} / ${size.fetchP99Us.toFixed(1)}`,
    formatPercent(size.coreShareAt2000PerS),
  ]);
  const table = renderTable({
    head: ['engines', 'groups', 'assignments/s', 'us each', 'fetch p50 / p99, us', 'core at 2,000/s'],
    rows,
  });
  const bytes = Math.round(result.bytesPerWaitingRequest);
  return `${table}\n${bytes} bytes a waiting request (${formatCount(result.waitingRequests)} of them)`;
}
