import { Command, Option } from 'commander';
import type { RdmaBenchResult, RdmaTest } from '../bench/index.js';
import { DualPathError } from '../errors/index.js';
import { trafficClassNames, type TrafficClassName } from '../rdma/index.js';
import { renderTable } from '../telemetry/index.js';
import {
  addExamples,
  addOutputOptions,
  contextOf,
  listOf,
  nonNegativeInteger,
  positiveInteger,
  positiveNumber,
  sizeBytes,
  type CliContext,
} from './support.js';

const rdmaTests = ['write', 'read', 'write-latency', 'read-latency'] as const satisfies readonly RdmaTest[];

export interface SideFlags {
  readonly device?: string;
  readonly gidIndex?: number;
  readonly peer?: string;
  readonly serve?: boolean;
  readonly bind?: string;
  readonly controlPort?: number;
}

interface RdmaFlags extends SideFlags {
  readonly test?: readonly RdmaTest[];
  readonly size?: readonly number[];
  readonly postList?: number;
  readonly queuePairs?: number;
  readonly depth?: number;
  readonly class?: TrafficClassName;
  readonly compare?: 'perftest';
  readonly pairs?: number;
  readonly slice?: number;
}

/** Which side this is; under `dualpath rxe --hosts 2` the second host serves the first. */
export function addSideOptions(command: Command): Command {
  return command
    .option('--device <name>', 'RDMA device (default: the first that can be used)')
    .option('--gid-index <index>', 'GID of the device (default: the best)', nonNegativeInteger)
    .option('--peer <address>', 'where the other side serves (default: both sides in this process)')
    .option('--serve', 'be the other side of one benchmark, then end')
    .option('--bind <address>', 'with --serve: where to listen; whoever reaches it can use this device')
    .option('--control-port <port>', 'TCP port of --serve and --peer (default: 18600)', positiveInteger);
}

/** True when this side only serves, and has. */
export async function servedSide(flags: SideFlags, context: CliContext): Promise<boolean> {
  const { env } = process;
  const second = env['DUALPATH_RXE_HOST'] === '2' && flags.peer === undefined;
  if (flags.serve !== true && !second) return false;
  if (flags.peer !== undefined) {
    throw new DualPathError('INVALID_ARGUMENT', '--serve and --peer: a side serves or measures');
  }
  const address = flags.bind ?? env['DUALPATH_RXE_ADDRESS'] ?? '127.0.0.1';
  const { defaultControlPort, serveNode } = await import('../bench/index.js');
  const { controlPort = defaultControlPort } = flags;
  context.note(`serving at ${address}:${controlPort}`);
  await serveNode({ address, port: controlPort, once: true, signal: context.signal });
  return true;
}

export function sidesOf({ device, gidIndex, peer, controlPort }: SideFlags): {
  device?: string;
  gidIndex?: number;
  peer?: string;
  controlPort?: number;
} {
  const hosts = process.env['DUALPATH_RXE_ADDRESSES']?.split(',') ?? [];
  const other = peer ?? (process.env['DUALPATH_RXE_HOST'] === '1' ? hosts[1] : undefined);
  return {
    ...(controlPort === undefined ? {} : { controlPort }),
    ...(device === undefined ? {} : { device }),
    ...(gidIndex === undefined ? {} : { gidIndex }),
    ...(other === undefined ? {} : { peer: other }),
  };
}

/** `dualpath bench rdma`: the product's chains over a device, beside perftest. */
export function rdmaCommand(): Command {
  const choice = (names: readonly string[]) => (text: string) => oneOf(names, text);
  const rdma = new Command('rdma')
    .description('bandwidth and latency of chains of work requests over an RDMA device')
    .option('--test <names>', `${rdmaTests.join(', ')} (default: write)`, listOf(choice(rdmaTests)))
    .option('--size <sizes>', 'of messages (default: 4KiB,64KiB,1MiB)', listOf(sizeBytes))
    .option(
      '--post-list <count>',
      'requests of a chain: one post, one completion (default: 32)',
      positiveInteger,
    )
    .option('--queue-pairs <count>', 'default: 1', positiveInteger)
    .option('--depth <count>', 'requests outstanding on each (default: 128)', positiveInteger)
    .addOption(new Option('--class <name>', 'traffic class (default: kv)').choices(trafficClassNames))
    .addOption(new Option('--compare <program>', 'alternate with its tools').choices(['perftest']))
    .option('--pairs <count>', 'slices of each (default: 5)', positiveInteger)
    .option('--slice <seconds>', 'length of a slice (default: 1.5)', positiveNumber);
  addOutputOptions(addSideOptions(rdma));
  addExamples(
    rdma,
    'dualpath bench rdma --compare perftest',
    'dualpath rxe -- dualpath bench rdma --compare perftest --json',
    'dualpath rxe --hosts 2 -- dualpath bench rdma --test read-latency --size 4KiB',
  );
  return rdma.action(async (flags: RdmaFlags, command: Command) => {
    const context = contextOf(command);
    if (await servedSide(flags, context)) return;
    const { benchRdma } = await import('../bench/index.js');
    const { test, size, postList, queuePairs, depth, compare, pairs, slice } = flags;
    const result = await benchRdma({
      ...sidesOf(flags),
      ...(test === undefined ? {} : { tests: test }),
      ...(size === undefined ? {} : { sizes: size }),
      ...(postList === undefined ? {} : { postList }),
      ...(queuePairs === undefined ? {} : { queuePairs }),
      ...(depth === undefined ? {} : { depth }),
      ...(flags.class === undefined ? {} : { trafficClass: flags.class }),
      ...(compare === undefined ? {} : { compare }),
      ...(pairs === undefined ? {} : { pairs }),
      ...(slice === undefined ? {} : { sliceS: slice }),
      signal: context.signal,
      onProgress: (step) => context.note(`measuring: ${step}`),
    });
    context.result(result, () => rdmaText(result));
  });
}

function oneOf<T extends string>(names: readonly T[], text: string): T {
  const found = names.find((name) => name === text);
  if (found !== undefined) return found;
  throw new DualPathError('INVALID_ARGUMENT', `'${text}' is none of ${names.join(', ')}`);
}

const mebibytes = (bytesPerS: number): string => (bytesPerS / 2 ** 20).toFixed(2);

/** perftest's columns, and what perftest itself shows beside them. */
function rdmaText({ results, latency, batching, carriedBy, trafficClass, hosts }: RdmaBenchResult): string {
  const parts: string[] = [];
  if (results.length > 0) parts.push(bandwidthTable(results));
  if (latency.length > 0) parts.push(latencyTable(latency));
  if (batching !== undefined) {
    parts.push(
      `${batching.sizeBytes} bytes one by one ${mebibytes(batching.singleBytesPerS)} MiB/s, in chains of ` +
        `${batching.postList} ${mebibytes(batching.chainedBytesPerS)} MiB/s: ` +
        `${batching.gain.toFixed(3)} times (+- ${batching.gainHalfWidth.toFixed(3)})`,
    );
  }
  parts.push(`carried by: ${carriedBy}, class ${trafficClass}, ${hosts === 1 ? 'one host' : 'two hosts'}`);
  return parts.join('\n');
}

function bandwidthTable(results: RdmaBenchResult['results']): string {
  return renderTable({
    head: [
      'test',
      '#bytes',
      '#iterations',
      'BW peak [MiB/s]',
      'BW average [MiB/s]',
      'MsgRate [Mpps]',
      'post list, QPs, depth',
      'perftest [MiB/s]',
      'ratio',
    ],
    rows: results.map((row) => [
      row.test,
      String(row.sizeBytes),
      String(row.iterations),
      mebibytes(row.bandwidthPeakBytesPerS),
      mebibytes(row.bandwidthBytesPerS),
      (row.messagesPerS / 1e6).toFixed(6),
      `${row.postList}, ${row.queuePairs}, ${row.depth}`,
      row.perftestBytesPerS === undefined ? '-' : mebibytes(row.perftestBytesPerS),
      row.ratio === undefined ? '-' : `${row.ratio.toFixed(3)} +- ${row.ratioHalfWidth?.toFixed(3)}`,
    ]),
  });
}

function latencyTable(latency: RdmaBenchResult['latency']): string {
  const us = (value: number | undefined): string => value?.toFixed(2) ?? '-';
  return renderTable({
    head: ['test', '#bytes', '#iterations', 't_typical [usec]', '99% [usec]', 'perftest', '99%', 'ratio'],
    rows: latency.map((row) => [
      row.test,
      String(row.sizeBytes),
      String(row.samples),
      us(row.p50Us),
      us(row.p99Us),
      us(row.perftest?.p50Us),
      us(row.perftest?.p99Us),
      row.ratio?.toFixed(3) ?? '-',
    ]),
  });
}
