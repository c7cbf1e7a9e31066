import { Command } from 'commander';
import type { LookupResult, Percentiles } from '../bench/index.js';
import { renderTable } from '../telemetry/index.js';
import { addExamples, addOutputOptions, contextOf, listOf, positiveInteger } from './support.js';

interface LookupFlags {
  readonly blocks: readonly number[];
  readonly samples: number;
  readonly directory?: string;
}

export function lookupCommand(): Command {
  const lookup = new Command('lookup')
    .description('look-ups of the longest stored prefix: whole, on the JavaScript thread, and in parts')
    .option('--blocks <list>', 'blocks of 64 tokens of the prompts', listOf(positiveInteger), [512, 2048])
    .option('--samples <count>', 'look-ups of each case', positiveInteger, 1000)
    .option('--directory <path>', "where the benchmark's store is made and removed (default: the system's)");
  addOutputOptions(lookup);
  addExamples(lookup, 'dualpath bench lookup', 'dualpath bench lookup --blocks 2048 --json');
  return lookup.action(async (flags: LookupFlags, command: Command) => {
    const context = contextOf(command);
    const { benchLookup } = await import('../bench/index.js');
    const results = await benchLookup({
      ...flags,
      signal: context.signal,
      onProgress: (step) => context.note(`measuring: ${step}`),
    });
    context.result({ results }, () => lookupText(results));
  });
}

function lookupText(results: readonly LookupResult[]): string {
  const us = (value: number): string => value.toFixed(1);
  const pair = ({ p50, p99 }: Percentiles): string => `${us(p50)} / ${us(p99)}`;
  return renderTable({
    head: [
      'look-up',
      'blocks',
      'stored',
      'total us, p50 / p99',
      'JavaScript us, p50 / p99',
      'CPU',
      'copy',
      'compare',
      'hash',
      'index',
    ],
    rows: results.map((r) => [
      r.tokensIn === 'ArrayBuffer' ? r.case : `${r.case}, shared`,
      String(r.blocks),
      String(r.storedBlocks),
      pair(r.totalUs),
      pair(r.javascriptUs),
      r.javascriptCpuUs === null ? '-' : us(r.javascriptCpuUs),
      us(r.copyUs),
      us(r.compareUs),
      us(r.hashUs),
      us(r.indexUs),
    ]),
  });
}
