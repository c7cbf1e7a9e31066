import { Command, Option } from 'commander';
import type { QosResult } from '../bench/index.js';
import { formatBytesPerSecond, renderTable } from '../telemetry/index.js';
import { addSideOptions, servedSide, sidesOf, type SideFlags } from './bench-rdma.js';
import { addExamples, addOutputOptions, contextOf, positiveInteger, sizeBytes } from './support.js';

interface QosFlags extends SideFlags {
  readonly samples?: number;
  readonly samplesWithoutClasses?: number;
  readonly rounds?: number;
  readonly rateMbit?: number;
  readonly size?: number;
  readonly compare: 'perftest' | 'none';
}

/** `dualpath bench qos`: what traffic classes keep from the inference class. */
export function qosCommand(): Command {
  const qos = new Command('qos')
    .description('latency of the inference class: idle, under KV-Cache traffic with classes, and without')
    .option('--samples <count>', 'idle and with classes (default: 10000)', positiveInteger)
    .option('--samples-without-classes <count>', 'each takes some 25 ms (default: 2000)', positiveInteger)
    .option('--rounds <count>', 'turns that they are taken in (default: 5)', positiveInteger)
    .option('--rate-mbit <rate>', 'of the link, by tc on both sides (default: 80)', positiveInteger)
    .option('--size <size>', 'of what is read (default: 4KiB)', sizeBytes)
    .addOption(
      new Option('--compare <program>', 'its tools in the same set-up, in turns')
        .choices(['perftest', 'none'])
        .default('perftest'),
    );
  addOutputOptions(addSideOptions(qos));
  addExamples(
    qos,
    'dualpath rxe --hosts 2 -- dualpath bench qos --json',
    'dualpath bench qos --peer 10.0.0.2 --compare none',
  );
  return qos.action(async (flags: QosFlags, command: Command) => {
    const context = contextOf(command);
    if (await servedSide(flags, context)) return;
    const { benchQos } = await import('../bench/index.js');
    const { samples, samplesWithoutClasses, rounds, rateMbit, size, compare } = flags;
    const result = await benchQos({
      ...sidesOf(flags),
      ...(samples === undefined ? {} : { samples }),
      ...(samplesWithoutClasses === undefined ? {} : { samplesWithoutClasses }),
      ...(rounds === undefined ? {} : { rounds }),
      ...(rateMbit === undefined ? {} : { rateMbit }),
      ...(size === undefined ? {} : { bytes: size }),
      ...(compare === 'none' ? {} : { compare }),
      signal: context.signal,
      onProgress: (step) => context.note(`measuring: ${step}`),
    });
    context.result(result, () => qosText(result));
  });
}

function qosText(result: QosResult): string {
  const { perftest, overIdle, perftestOverIdle, overIdleRatio } = result;
  const us = (value: number | undefined): string => value?.toFixed(0) ?? '-';
  const rows = (
    [
      ['idle', 'idle'],
      ['KV flood, classes', 'floodWithClasses'],
      ['KV flood, no classes', 'floodWithoutClasses'],
    ] as const
  ).map(([title, name]) => {
    const { p50Us, p99Us, samples, kvBytesPerS } = result[name];
    const theirs = perftest?.[name];
    return [
      title,
      `${us(p50Us)} / ${us(p99Us)}`,
      String(samples),
      kvBytesPerS === null ? '-' : formatBytesPerSecond(kvBytesPerS),
      `${us(theirs?.p50Us)} / ${us(theirs?.p99Us)}`,
    ];
  });
  const table = renderTable({
    head: [
      `reads of ${result.sizeBytes} bytes`,
      'p50 / p99, us',
      'samples',
      'KV moved',
      'perftest p50 / p99',
    ],
    rows,
  });
  const pair = ({ p50, p99 }: { p50: number; p99: number }): string =>
    `${p50.toFixed(2)} / ${p99.toFixed(2)}`;
  const comparison =
    perftestOverIdle === undefined || overIdleRatio === undefined
      ? ''
      : `, perftest ${pair(perftestOverIdle)}, ratio ${pair(overIdleRatio)}`;
  return (
    `${table}\nwith classes over idle, p50 / p99: ${pair(overIdle)}${comparison}\n` +
    `carried by: ${result.carriedBy}, a link of ${formatBytesPerSecond(result.linkBytesPerS)}`
  );
}
