import { Command, InvalidArgumentError } from 'commander';
import type { BalanceResult, TailResult } from '../bench/index.js';
import { formatPercent, renderTable } from '../telemetry/index.js';
import {
  addExamples,
  addOutputOptions,
  contextOf,
  listOf,
  nonNegativeInteger,
  positiveInteger,
  positiveNumber,
} from './support.js';

interface Flags {
  readonly prefill: number;
  readonly decode: number;
  readonly seconds: number;
  readonly seed: number;
}

/** `dualpath bench balance`: storage links and attention of a modelled cluster, against round robin. */
export function balanceCommand(): Command {
  const command = new Command('balance').description(
    'how evenly scheduling loads links and attention, in a model in virtual time (64K agents, DS 660B)',
  );
  addModelOptions(command, { prefill: 5, decode: 11, seconds: 300 });
  command.option('--agents <count>', 'agents at work (default: as 2,048 on 6 nodes)', positiveInteger);
  addExamples(command, 'dualpath bench balance --prefill 2 --decode 4 --seconds 120 --json');
  return command.action(async (flags: Flags & { agents?: number }, self: Command) => {
    const context = contextOf(self);
    const { benchBalance } = await import('../bench/index.js');
    const { agents } = flags;
    const result = benchBalance({
      ...modelOptions(flags),
      ...(agents === undefined ? {} : { agents }),
      signal: context.signal,
      onProgress: (step) => context.note(`modelling: ${step}`),
    });
    context.result(result, () => balanceText(result));
  });
}

/** `dualpath bench tail`: time to first token of heavy-tailed prompts, the paper's policy against the tail policy. */
export function tailCommand(): Command {
  const command = new Command('tail').description(
    'time to first token of heavy-tailed prompts by policy, in a model in virtual time (DS 660B)',
  );
  addModelOptions(command, { prefill: 2, decode: 4, seconds: 400 });
  command.option('--loads <shares>', "of what the paper's policy can take", listOf(loadShare), [0.7, 0.9]);
  addExamples(command, 'dualpath bench tail --loads 0.9 --json');
  return command.action(async (flags: Flags & { loads: number[] }, self: Command) => {
    const context = contextOf(self);
    const { benchTail } = await import('../bench/index.js');
    const result = benchTail({
      ...modelOptions(flags),
      loads: flags.loads,
      signal: context.signal,
      onProgress: (step) => context.note(`modelling: ${step}`),
    });
    context.result(result, () => tailText(result));
  });
}

function addModelOptions(
  command: Command,
  defaults: { prefill: number; decode: number; seconds: number },
): void {
  command
    .option('--prefill <nodes>', 'prefill nodes, of 8 engines', positiveInteger, defaults.prefill)
    .option('--decode <nodes>', 'decode nodes', positiveInteger, defaults.decode)
    .option(
      '--seconds <seconds>',
      'measured, in virtual time; at least 60',
      positiveInteger,
      defaults.seconds,
    )
    .option('--seed <number>', 'of agents, arrivals and ties', nonNegativeInteger, 1);
  addOutputOptions(command);
}

function modelOptions({ prefill, decode, seconds, seed }: Flags): {
  prefillNodes: number;
  decodeNodes: number;
  seconds: number;
  seed: number;
} {
  return { prefillNodes: prefill, decodeNodes: decode, seconds, seed };
}

function loadShare(text: string): number {
  const load = positiveNumber(text);
  if (load < 1) return load;
  throw new InvalidArgumentError('Give a share below 1: beyond it queues grow without end.');
}

function balanceText({ links, slowLink, attention, windowsS, ...result }: BalanceResult): string {
  const table = renderTable({
    head: [
      'storage links, max/mean in windows of',
      ...windowsS.map((windowS) => `${windowS} s`),
      'busy',
      'TTFT mean / p99, s',
    ],
    rows: links.map(({ scheduler, maxOverMean, linkUtilization, ttftMeanS, ttftP99S }) => [
      scheduler,
      ...maxOverMean.map((value) => value.toFixed(3)),
      formatPercent(linkUtilization),
      `${ttftMeanS.toFixed(2)} / ${ttftP99S.toFixed(2)}`,
    ]),
  });
  const slow = renderTable({
    head: ['one decode link at a quarter of its rate', 'requests/s', 'TTFT mean / p99, s'],
    rows: slowLink.map(({ policy, rates, requestsPerS, ttftMeanS, ttftP99S }) => [
      `${policy}, ${rates} rates`,
      requestsPerS.toFixed(1),
      `${ttftMeanS.toFixed(2)} / ${ttftP99S.toFixed(2)}`,
    ]),
  });
  const rows = attention.map(
    ({ tokens, quotaS, maxOverMean }) =>
      `attention max/mean, ${tokens} tokens, ${quotaS === null ? 'no quota' : `a quota of ${quotaS} s`}: ${maxOverMean.toFixed(3)}`,
  );
  const { prefillNodes, decodeNodes, agents, seconds } = result;
  return `${table}\n${slow}\n${rows.join('\n')}\n${prefillNodes}P${decodeNodes}D, ${agents} agents, ${seconds} s in virtual time; a model, not a measurement`;
}

function tailText({ runs, capacityPerS, ...result }: TailResult): string {
  const classes = runs[0]?.classes ?? [];
  const table = renderTable({
    head: [
      'load, policy',
      'mean',
      'p50',
      'p99',
      'per s',
      ...classes.map(({ newTokens }) => `p99 ${newTokens}`),
    ],
    rows: runs.map((run) => [
      `${run.load} ${run.policy}`,
      run.ttftMeanS.toFixed(2),
      run.ttftP50S.toFixed(2),
      run.ttftP99S.toFixed(2),
      run.throughputPerS.toFixed(1),
      ...run.classes.map(({ p99S, count }) => `${p99S.toFixed(1)} (${count})`),
    ]),
  });
  const { prefillNodes, decodeNodes, seconds } = result;
  return (
    `${table}\nTTFT in s, by new tokens with the count of requests; ${prefillNodes}P${decodeNodes}D, ${seconds} s in ` +
    `virtual time, saturated at ${capacityPerS.toFixed(1)} requests/s; a model, not a measurement`
  );
}
