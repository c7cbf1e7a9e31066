import { Command, Option } from 'commander';
import { DualPathError } from '../errors/index.js';
import type { LoadOptions } from '../load/index.js';
import { toolAgentSessions, type Session } from '../trace/index.js';
import {
  addExamples,
  addOutputOptions,
  addWorkloadOptions,
  contextOf,
  loadWorkloadWithProgress,
  positiveInteger,
  positiveNumber,
  type CliContext,
  type WorkloadFlags,
} from './support.js';

interface Flags extends WorkloadFlags {
  url: string;
  qps: number;
  model?: string;
  requests?: number;
  arrivals: 'trace' | 'poisson';
  endpoint: 'completions' | 'chat';
  promptIds?: number;
  maxPrompt: number;
  maxOutput: number;
  slo: number;
  concurrency: number;
}

/** `dualpath load`: a trace over HTTP. */
export function loadCommand(): Command {
  const command = new Command('load')
    .description('replay a trace over HTTP against an OpenAI-compatible server or the router')
    .argument('<trace>', 'a trace, or tool-agent: a generated one')
    .requiredOption('--url <url>', 'the server, such as http://127.0.0.1:8000')
    .requiredOption('--qps <rate>', 'requests a second', positiveNumber)
    .option('--model <name>', 'model (default: the first that the server lists)')
    .option('--requests <count>', 'requests to send, the first (default: all)', positiveInteger)
    .addOption(
      new Option('--arrivals <kind>', "the trace's times stretched to the rate, or Poisson's")
        .choices(['trace', 'poisson'])
        .default('poisson'),
    )
    .addOption(new Option('--endpoint <api>', 'API').choices(['completions', 'chat']).default('completions'))
    .option('--prompt-ids <vocabulary>', 'prompts as token ids below this (default: text)', positiveInteger)
    .option('--max-prompt <tokens>', 'prompts are cut to this', positiveInteger, 20_480)
    .option('--max-output <tokens>', 'answers are cut to this', positiveInteger, 1024)
    .option('--slo <seconds>', 'time to first token that is good', positiveNumber, 5)
    .option('--concurrency <count>', 'requests under way at once', positiveInteger, 4096);
  addWorkloadOptions(command);
  addOutputOptions(command);
  addExamples(
    command,
    'dualpath load examples/traces/conversation-sample.jsonl --url http://127.0.0.1:8000 --qps 4 --max-output 64',
  );
  return command.action(async (path: string, flags: Flags, command: Command) => {
    const context = contextOf(command);
    const { runLoad, summaryText } = await import('../load/index.js');
    const sessions = await sessionsOf(path, flags, context);
    const model = flags.model ?? (await firstModel(flags.url));
    if (flags.promptIds !== undefined && flags.endpoint === 'chat') {
      throw new DualPathError('INVALID_ARGUMENT', 'chat takes no token ids: give --endpoint completions');
    }
    const planned = flags.requests ?? sessions.reduce((sum, { turns }) => sum + turns.length, 0);
    const progress = context.progress('requests', planned);
    const options: LoadOptions = {
      url: flags.url,
      qps: flags.qps,
      model,
      arrivals: flags.arrivals,
      seed: flags.seed ?? 0,
      requests: flags.requests,
      maxPromptTokens: flags.maxPrompt,
      maxOutputTokens: flags.maxOutput,
      endpoint: flags.endpoint,
      vocabulary: flags.promptIds ?? null,
      sloS: flags.slo,
      concurrency: flags.concurrency,
      signal: context.signal,
      onProgress: (done, total, failed) =>
        progress.update(done, failed === 0 ? '' : `${failed} failed`, total),
    };
    try {
      const summary = await runLoad(sessions, options);
      progress.stop();
      if (summary.failed > 0) context.fail();
      context.result(summary, () => summaryText(summary));
    } finally {
      progress.stop();
    }
  });
}

async function sessionsOf(path: string, flags: Flags, context: CliContext): Promise<readonly Session[]> {
  if (path === 'tool-agent') return toolAgentSessions(flags.seed ?? 0);
  return (await loadWorkloadWithProgress(path, flags, context)).sessions;
}

async function firstModel(url: string): Promise<string> {
  let reason: string;
  try {
    const response = await fetch(new URL('/v1/models', url), { signal: AbortSignal.timeout(10_000) });
    const { data } = (await response.json()) as { data?: { id?: string }[] };
    const id = data?.[0]?.id;
    if (id !== undefined) return id;
    reason = 'it lists none';
  } catch (error) {
    reason = error instanceof Error ? error.message : String(error);
  }
  throw new DualPathError('INVALID_ARGUMENT', `no model is known at ${url} (${reason}): give --model`, {
    url,
  });
}
