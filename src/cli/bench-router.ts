import { Command } from 'commander';
import type { RouterBenchResult } from '../bench/index.js';
import { formatBytes, formatCount, renderTable } from '../telemetry/index.js';
import { addExamples, addOutputOptions, contextOf, listOf, positiveInteger } from './support.js';

/** `dualpath bench router`: what a routing decision costs. */
export function routerCommand(): Command {
  const router = new Command('router')
    .description('a routing decision, a rebalancing, and what the tables hold')
    .option(
      '--replicas <list>',
      'numbers of replicas, each up to 4,096',
      listOf(positiveInteger),
      [8, 32, 128, 1024],
    )
    .option('--decisions <count>', 'decisions timed at each', positiveInteger, 50_000)
    .option('--prefixes <count>', 'distinct prefixes for the memory', positiveInteger, 10_000_000);
  addOutputOptions(router);
  addExamples(router, 'dualpath bench router --json');
  return router.action(
    async (flags: { replicas: number[]; decisions: number; prefixes: number }, command: Command) => {
      const context = contextOf(command);
      const { benchRouter } = await import('../bench/index.js');
      const result = await benchRouter({
        signal: context.signal,
        onProgress: (step) => context.note(`measuring: ${step}`),
        replicas: flags.replicas,
        decisions: flags.decisions,
        distinctPrefixes: flags.prefixes,
      });
      context.result(result, () => routerText(result));
    },
  );
}

function routerText({
  results,
  promptBlocks,
  publishedRouteUs,
  rebalance,
  memory,
}: RouterBenchResult): string {
  const us = (value: number): string => `${value.toFixed(2)} us`;
  const decisions = renderTable({
    head: [`decision, ${promptBlocks} blocks`, 'p50', 'p99', 'max', 'finish p50', 'p99'],
    rows: [
      ...results.map(({ replicas, p50Us, p99Us, maxUs, finishP50Us, finishP99Us }) => [
        `${formatCount(replicas)} replicas`,
        us(p50Us),
        us(p99Us),
        us(maxUs),
        us(finishP50Us),
        us(finishP99Us),
      ]),
      ['published', us(publishedRouteUs), '', '', '', ''],
    ],
  });
  const rest = renderTable({
    head: ['', 'here', 'published'],
    rows: [
      [
        `rebalancing ${formatCount(rebalance.queuedRequests)} requests, ${rebalance.moved} moved, p50 / max`,
        `${rebalance.p50Ms.toFixed(2)} / ${rebalance.maxMs.toFixed(2)} ms`,
        `${rebalance.publishedMs} ms`,
      ],
      [
        'index of a replica with 1M tokens',
        formatBytes(memory.indexBytesPerReplica),
        formatBytes(memory.publishedBytesPerReplica),
      ],
      [
        `heap and tables of ${memory.replicas} replicas, after a tenth of / all ${formatCount(memory.distinctPrefixes)} prefixes`,
        `${formatBytes(memory.warmBytes)} / ${formatBytes(memory.finalBytes)}`,
        '',
      ],
    ],
  });
  return `${decisions}\n${rest}`;
}
