import { Command, Option } from 'commander';
import type { StorageFigures, StorageResult, StorageSizeResult } from '../bench/index.js';
import { formatBytes, formatBytesPerSecond, formatCount, renderTable } from '../telemetry/index.js';
import {
  addExamples,
  addOutputOptions,
  contextOf,
  listOf,
  positiveInteger,
  positiveNumber,
  sizeBytes,
} from './support.js';

interface StorageFlags {
  readonly path?: string;
  readonly size?: readonly number[];
  readonly fileSize?: number;
  readonly depth?: number;
  readonly slice?: number;
  readonly compare?: 'fio';
  readonly maxPairs?: number;
  readonly storageIo?: 'auto' | 'io_uring' | 'thread_pool';
}

/** `dualpath bench storage`: what reading costs, beside fio. */
export function storageCommand(): Command {
  const storage = new Command('storage')
    .description("read a file at random through the data path's ring, and block files through an engine")
    .option('--path <directory>', 'directory of the disk to measure; a folder is made there and removed')
    .option('--size <sizes>', 'sizes of requests (default: 4KiB,64KiB,1MiB)', listOf(sizeBytes))
    .option('--file-size <size>', 'size of the file that is read (default: 1GiB)', sizeBytes)
    .option('--depth <count>', 'requests under way, 1 to 128 (default: 32)', positiveInteger)
    .option('--slice <seconds>', 'length of one measurement (default: 1)', positiveNumber)
    .addOption(
      new Option('--compare <program>', 'alternate with the same load of this program').choices(['fio']),
    )
    .option(
      '--max-pairs <count>',
      'most pairs of slices a size is compared by (default: 12)',
      positiveInteger,
    )
    .addOption(
      new Option('--storage-io <kind>', 'who makes the calls (default: auto)').choices([
        'auto',
        'io_uring',
        'thread_pool',
      ]),
    );
  addOutputOptions(storage);
  addExamples(
    storage,
    'dualpath bench storage --compare fio',
    'dualpath bench storage --path /kv --size 64KiB --json',
  );
  return storage.action(async (flags: StorageFlags, command: Command) => {
    const context = contextOf(command);
    const { benchStorage } = await import('../bench/index.js');
    const result = await benchStorage({
      ...(flags.path === undefined ? {} : { directory: flags.path }),
      ...(flags.size === undefined ? {} : { sizes: flags.size }),
      ...(flags.fileSize === undefined ? {} : { fileBytes: flags.fileSize }),
      ...(flags.depth === undefined ? {} : { depth: flags.depth }),
      ...(flags.slice === undefined ? {} : { sliceS: flags.slice }),
      ...(flags.maxPairs === undefined ? {} : { maxPairs: flags.maxPairs }),
      ...(flags.storageIo === undefined ? {} : { storageIo: flags.storageIo }),
      compare: flags.compare,
      signal: context.signal,
      onProgress: (step) => context.note(`measuring: ${step}`),
    });
    if (result.results.some(({ verified }) => verified.mismatches > 0)) context.fail();
    context.result(result, () => storageText(result));
  });
}

/** Columns as fio names them. */
function storageText(result: StorageResult): string {
  const table = renderTable({
    head: ['random reads', 'IOPS', 'BW', 'lat avg', 'p50', 'p99', 'CPU ns/B'],
    rows: result.results.flatMap(rowsOf),
  });
  const notes = result.results.flatMap(noteOf);
  const how = `depth ${result.depth}, O_DIRECT, a file of ${formatBytes(result.fileBytes)}, slices of ${result.sliceS} s, medians`;
  return [
    table,
    how,
    ...notes,
    ...(result.estimator === undefined ? [] : [`ratio: ${result.estimator}`]),
  ].join('\n');
}

function rowsOf(size: StorageSizeResult): string[][] {
  const name = formatBytes(size.sizeBytes);
  const us = (value: number): string => `${value.toFixed(0)} us`;
  const row = (what: string, figures: StorageFigures): string[] => [
    `${name} ${what}`,
    formatCount(Math.round(figures.operationsPerS)),
    formatBytesPerSecond(figures.bytesPerS),
    us(figures.latencyMeanUs),
    us(figures.latencyP50Us),
    us(figures.latencyP99Us),
    figures.cpuNsPerByte.toFixed(3),
  ];
  const { store } = size;
  return [
    row('dualpath', size),
    ...(size.fio === undefined ? [] : [row('fio', size.fio)]),
    row('dualpath, verified', size.verified),
    [
      `${formatBytes(store.fileBytes)} block files: open, read, verify, close`,
      formatCount(Math.round(store.operationsPerS)),
      formatBytesPerSecond(store.bytesPerS),
      '',
      '',
      '',
      store.cpuNsPerByte.toFixed(3),
    ],
  ];
}

function noteOf(size: StorageSizeResult): string[] {
  const name = formatBytes(size.sizeBytes);
  const registered = `${(100 * size.registeredShare).toFixed(0)} % through registered buffers`;
  const checksum = `checksums ${size.checksumNsPerByte.toFixed(3)} ns/B`;
  const by = size.offload
    ? `${size.storageIo} by the kernel's workers (not a local file system)`
    : size.storageIo;
  const carried = `${name}: ${by}, ${registered}, ${checksum}`;
  if (size.ratio === undefined) return [carried];
  const ratio = `${size.ratio.toFixed(3)} +- ${size.ratioHalfWidth!.toFixed(3)} of fio's bandwidth`;
  const limit = size.converged === true ? '' : ' (the limit of pairs came first: the disk varies)';
  return [
    `${carried}; ${ratio} over ${size.slices} pairs${limit}, ${size.cpuRatio!.toFixed(2)} of its CPU per byte`,
  ];
}
