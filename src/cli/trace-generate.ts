import { Command, Option } from 'commander';
import { formatCount, renderTable } from '../telemetry/index.js';
import {
  dataSets,
  dataSetStatistics,
  generateTrace,
  type DataSetName,
  type DataSetStatistics,
  type GeneratedSession,
} from '../trace/index.js';
import {
  addExamples,
  addOutputOptions,
  contextOf,
  nonNegativeInteger,
  positiveInteger,
  positiveNumber,
} from './support.js';

interface Flags {
  readonly dataset: DataSetName;
  readonly trajectories: number;
  readonly agents?: number;
  readonly arrivalRate?: number;
  readonly seed: number;
}

/** `dualpath trace generate`: a seeded workload like one of the paper's data sets. */
export function generateCommand(): Command {
  const generate = new Command('generate')
    .description("generate agent trajectories like those of the paper's Table 2, a session a line")
    .addOption(
      new Option('--dataset <name>', 'which of the data sets').choices(Object.keys(dataSets)).default('64k'),
    )
    .option('--trajectories <count>', 'distinct trajectories', positiveInteger, 500)
    .option(
      '--agents <count>',
      'sessions; beyond the trajectories, these again with a turn of random tokens in front (default: as many)',
      positiveInteger,
    )
    .option(
      '--arrival-rate <agents/s>',
      'Poisson arrivals of agents (default: none recorded)',
      positiveNumber,
    )
    .option('--seed <number>', 'seed of all draws', nonNegativeInteger, 0);
  addOutputOptions(generate);
  generate.addHelpText(
    'after',
    '\nThe trace goes to stdout, its statistics beside the published ones to stderr; with --json the statistics\n' +
      'go to stdout and no trace is written.',
  );
  addExamples(generate, 'dualpath trace generate --dataset 64k --trajectories 500 --seed 1 > trace.jsonl');
  return generate.action((flags: Flags, command: Command) => {
    const context = contextOf(command);
    const { dataset, trajectories, agents, arrivalRate, seed } = flags;
    const sessions: GeneratedSession[] = [];
    for (const session of generateTrace({
      dataSet: dataset,
      trajectories,
      seed,
      agents,
      agentsPerS: arrivalRate,
    })) {
      context.signal.throwIfAborted();
      sessions.push(session);
    }
    const { published } = dataSets[dataset];
    const generated = dataSetStatistics(sessions);
    const document = { dataset, trajectories, agents: sessions.length, seed, generated, published };
    context.note(statisticsText(generated, published));
    context.result(document, () => sessions.map((session) => JSON.stringify(session)).join('\n'));
  });
}

const columns: readonly (readonly [keyof DataSetStatistics, string])[] = [
  ['turns', 'turns'],
  ['appendTokens', 'append'],
  ['outputTokens', 'gen'],
  ['totalTokens', 'total'],
  ['contextTokens', 'context'],
];

function statisticsText(generated: DataSetStatistics, published: DataSetStatistics): string {
  const row = (name: string, of: DataSetStatistics): string[] => [
    name,
    ...columns.map(([key]) => formatCount(Math.round(of[key]))),
  ];
  return renderTable({
    head: ['', ...columns.map(([, name]) => name)],
    rows: [row('generated', generated), row('published', published)],
  });
}
