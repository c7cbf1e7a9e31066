import { Command } from 'commander';
import type { SimulatorBenchResult } from '../simulator/index.js';
import { formatBytes, formatCount, renderTable } from '../telemetry/index.js';
import { addExamples, addOutputOptions, contextOf, nonNegativeInteger } from './support.js';

/** `dualpath bench simulator`: events a second, and whole clusters. */
export function simulatorCommand(): Command {
  const command = new Command('simulator')
    .description("the simulator's event core, and whole clusters with their scheduler, up to 10,000 GPUs")
    .option(
      '--seconds <seconds>',
      'virtual time of each cluster; 0: to the end of its job',
      nonNegativeInteger,
      200,
    );
  addOutputOptions(command);
  addExamples(command, 'dualpath bench simulator --json');
  return command.action(async (flags: { seconds: number }, self: Command) => {
    const context = contextOf(self);
    const { benchSimulator } = await import('../simulator/index.js');
    const result = benchSimulator({
      virtualS: flags.seconds,
      signal: context.signal,
      onProgress: (step) => context.note(`measuring: ${step}`),
    });
    context.result(result, () => simulatorText(result));
  });
}

function simulatorText({ heap, clusters, growthOverLog, peakRssBytes }: SimulatorBenchResult): string {
  const events = renderTable({
    head: ['pending events', 'events a second', 'ns each'],
    rows: heap.map(({ pending, eventsPerS, nsPerEvent }) => [
      formatCount(pending),
      `${(eventsPerS / 1e6).toFixed(2)} M`,
      nsPerEvent.toFixed(0),
    ]),
  });
  const whole = renderTable({
    head: ['cluster', 'GPUs', 'agents', 'virtual s', 'requests', 'events', 'CPU s', 'us a request'],
    rows: clusters.map((row) => [
      row.cluster,
      formatCount(row.gpus),
      formatCount(row.agents),
      row.virtualS.toFixed(0),
      formatCount(row.requests),
      formatCount(row.events),
      row.cpuS.toFixed(1),
      row.usPerRequest.toFixed(1),
    ]),
  });
  return `${events}\nns an event over log2 of the pending ones, largest over smallest: ${growthOverLog.toFixed(2)}\n${whole}\npeak memory: ${formatBytes(peakRssBytes)}`;
}
