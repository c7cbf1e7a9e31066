import { Option, Command } from 'commander';
import { DualPathError } from '../errors/index.js';
import { writeReport } from '../report/index.js';
import type { EvaluationOptions, ModelName, Section } from '../route-eval/index.js';
import { toolAgentSessions, type Session } from '../trace/index.js';
import { routeEvalText } from './route-eval-text.js';
import {
  addExamples,
  addOutputOptions,
  contextOf,
  listOf,
  loadWorkloadWithProgress,
  nonNegativeInteger,
  positiveInteger,
  positiveNumber,
  type CliContext,
} from './support.js';
import { packageVersion } from './version.js';

interface Flags {
  model: ModelName;
  replicas: number;
  requests: number;
  warmUp: number;
  seeds?: number;
  firstSeed: number;
  traceSeed: number;
  qps?: number[];
  policies?: string[];
  sections?: string[];
  threads: number;
  quick?: boolean;
  report?: string;
  svg?: string;
}

/** `dualpath route-eval`: routing policies against each other, in virtual time. */
export function routeEvalCommand(): Command {
  const command = new Command('route-eval')
    .description('compare routing policies on emulated replicas, in virtual time')
    .argument('<trace>', "a trace in the mooncake format, or tool-agent: a generated stand-in for Mooncake's")
    .addOption(
      new Option('--model <model>', 'prefill time, cache and cut as published for')
        .choices(['7b', '14b'])
        .default('7b'),
    )
    .option('--replicas <count>', 'replicas', positiveInteger, 8)
    .option('--requests <count>', 'requests to take, the first', positiveInteger, 8000)
    .option('--warm-up <count>', 'requests that do not count', nonNegativeInteger, 500)
    .option(
      '--seeds <count>',
      'runs of each policy at each rate (default: 10, with --quick 3)',
      positiveInteger,
    )
    .option('--first-seed <number>', 'seeds count up from here', nonNegativeInteger, 0)
    .option('--trace-seed <number>', 'seed of tool-agent', nonNegativeInteger, 0)
    .option(
      '--qps <list>',
      'rates (default: 36 steps up to what an infinite cache could carry)',
      listOf(positiveNumber),
    )
    .option('--policies <list>', 'policies (default: all)', listOf(String))
    .option(
      '--sections <list>',
      'of curves,stale,order,elasticity,scaling (default: all, with --quick curves)',
      listOf(String),
    )
    .option('--threads <count>', 'threads', positiveInteger, 2)
    .option('--quick', 'fewer seeds, rates and sections: a first look')
    .option('--report <file>', 'write an HTML page: curves over QPS, tables, the published figures beside')
    .option('--svg <directory>', 'write the plots as SVG files');
  addOutputOptions(command);
  addExamples(
    command,
    'dualpath route-eval examples/traces/conversation-sample.jsonl --quick',
    'dualpath route-eval tool-agent --quick --report routing.html --svg plots',
    'dualpath route-eval tool-agent --policies dualmap,min-ttft,least-loaded --qps 12,13,14 --json',
  );
  return command.action(runRouteEval);
}

async function runRouteEval(path: string, flags: Flags, command: Command): Promise<void> {
  const context = contextOf(command);
  const routeEval = await import('../route-eval/index.js');
  const wanted = flags.sections ?? (flags.quick === true ? ['curves'] : routeEval.sections);
  checkNames('section', wanted, routeEval.sections);
  checkNames(
    'policy',
    flags.policies ?? [],
    routeEval.policyEntries.map(({ name }) => name),
  );
  const setting = routeEval.clusterSetting(flags.model, flags.replicas);
  const { maxPromptTokens } = routeEval.modelSettings[flags.model];
  const sessions = await sessionsOf(path, flags.traceSeed, context);
  const trace = routeEval.routeTrace(path, sessions, { requests: flags.requests, maxPromptTokens });
  let stop = (): void => undefined;
  const options: EvaluationOptions = {
    setting,
    warmUpRequests: Math.min(flags.warmUp, Math.floor(trace.promptTokens.length / 4)),
    seeds: flags.seeds ?? (flags.quick === true ? 3 : 10),
    firstSeed: flags.firstSeed,
    grid: flags.qps?.toSorted((a, b) => a - b),
    isCoarse: flags.quick === true,
    policies: flags.policies,
    sections: wanted as Section[],
    scalingReplicas: flags.quick === true ? [8, 32] : [8, 32, 128, 1024],
    threads: flags.threads,
    signal: context.signal,
    onSection: (section, tasks) => {
      stop();
      context.note(`${section}: ${tasks} runs`);
      const progress = context.progress(section, tasks);
      stop = progress.stop;
      return progress.update;
    },
  };
  try {
    const result = await routeEval.evaluate(trace, options);
    stop();
    if (!result.complete)
      context.note('interrupted: the result holds what was done, seeds that were complete');
    const made = `Made by dualpath ${packageVersion()} at ${new Date().toISOString()}.`;
    writeReport(routeEval.routeEvalReport(result, made), flags);
    context.result(result, () => routeEvalText(result));
  } finally {
    stop();
  }
}

async function sessionsOf(path: string, seed: number, context: CliContext): Promise<readonly Session[]> {
  if (path === 'tool-agent') return toolAgentSessions(seed);
  return (await loadWorkloadWithProgress(path, {}, context)).sessions;
}

function checkNames(what: string, names: readonly string[], known: readonly string[]): void {
  const unknown = names.find((name) => !known.includes(name));
  if (unknown === undefined) return;
  throw new DualPathError('INVALID_ARGUMENT', `there is no ${what} ${unknown}: use ${known.join(', ')}`, {
    [what]: unknown,
  });
}
