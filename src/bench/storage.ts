/**
 * Storage at the disk's speed: ranges of one file through the ring that the data path uses (registered buffers, a
 * fixed file, O_DIRECT), with and without checksums, beside fio in alternating slices; and whole block files through
 * an engine.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fromNative, native, type StorageLoad, type StorageLoadResult } from '../binding/index.js';
import { DualPathError } from '../errors/index.js';
import { fioSlice, fioVersion, type FioSlice } from './fio.js';
import { estimateRatio, median, ratioEstimator } from './paired.js';
import { measureStoreReads, type StoreReads } from './store-reads.js';

export interface StorageOptions {
  /** A folder is made in it, and removed. Default: the system's folder for temporary files. */
  readonly directory?: string;
  /** Bytes of a request; default 4 KiB, 64 KiB, 1 MiB. */
  readonly sizes?: readonly number[];
  /** Of the file that ranges are read from; default 1 GiB. */
  readonly fileBytes?: number;
  /** Requests under way, 1 to 128; default 32. */
  readonly depth?: number;
  /** Seconds of one slice; default 1. */
  readonly sliceS?: number;
  readonly compare?: 'fio' | undefined;
  /** Ends a comparison: its half-width is at most `halfWidth` (default 0.02), or there are `maxPairs` (default 12). */
  readonly halfWidth?: number;
  readonly maxPairs?: number;
  readonly storageIo?: 'auto' | 'io_uring' | 'thread_pool';
  readonly signal?: AbortSignal;
  readonly onProgress?: (step: string) => void;
}

export interface StorageFigures {
  readonly bytesPerS: number;
  readonly operationsPerS: number;
  readonly cpuNsPerByte: number;
  readonly latencyMeanUs: number;
  readonly latencyP50Us: number;
  readonly latencyP99Us: number;
}

export interface StorageSizeResult extends StorageFigures {
  readonly sizeBytes: number;
  readonly slices: number;
  readonly storageIo: 'io_uring' | 'thread_pool';
  /** Calls were made by the kernel's workers, as an engine has it for a store that is not local. */
  readonly offload: boolean;
  /** Share of the bytes that went through registered buffers. */
  readonly registeredShare: number;
  /** With every request verified, as the store verifies blocks (XXH3-64). */
  readonly verified: StorageFigures & { readonly mismatches: number };
  /** Time of the checksum itself, the median over the requests. */
  readonly checksumNsPerByte: number;
  readonly fio: StorageFigures | undefined;
  /** Bandwidth, ours / fio's; with its half-width and whether that came within the limit. */
  readonly ratio: number | undefined;
  readonly ratioHalfWidth: number | undefined;
  readonly converged: boolean | undefined;
  /** CPU per byte, ours / fio's, of the medians. */
  readonly cpuRatio: number | undefined;
  readonly store: StoreReads;
}

export interface StorageResult {
  readonly results: readonly StorageSizeResult[];
  readonly depth: number;
  readonly fileBytes: number;
  readonly sliceS: number;
  readonly fioVersion: string | undefined;
  readonly estimator: string | undefined;
}

const defaults = {
  sizes: [4 << 10, 64 << 10, 1 << 20],
  fileBytes: 1 << 30,
  depth: 32,
  sliceS: 1,
  halfWidth: 0.02,
  maxPairs: 12,
} as const;
const minPairs = 4;
const verifiedSlices = 3;
const page = 4096;
const maxSizeBytes = 64 << 20;
const maxStoredBytes = 256 << 20;

type Settings = StorageOptions & {
  readonly sizes: readonly number[];
  readonly fileBytes: number;
  readonly depth: number;
  readonly sliceS: number;
  readonly halfWidth: number;
  readonly maxPairs: number;
};

/** @throws INVALID_ARGUMENT, STORAGE_IO, NO_SPACE, MEMORY_LIMIT */
export async function benchStorage(options: StorageOptions = {}): Promise<StorageResult> {
  const settings: Settings = { ...defaults, ...given(options) };
  check(settings);
  const version = settings.compare === 'fio' ? await fioVersion() : undefined;
  const folder = await makeFolder(settings.directory ?? tmpdir());
  try {
    const path = join(folder, 'ranges');
    settings.onProgress?.('laying out the file');
    const checksums = await callBench(() =>
      native().layOutStorageFile({ path, bytes: settings.fileBytes, sizes: settings.sizes }),
    );
    const results: StorageSizeResult[] = [];
    for (const [i, sizeBytes] of settings.sizes.entries()) {
      results.push(await measureSize(settings, { path, folder, sizeBytes, checksums: checksums[i]! }));
    }
    return {
      results,
      depth: settings.depth,
      fileBytes: settings.fileBytes,
      sliceS: settings.sliceS,
      fioVersion: version,
      estimator: version === undefined ? undefined : ratioEstimator,
    };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

function given(options: StorageOptions): StorageOptions {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
}

function check(settings: Settings): void {
  const refuse = (name: string, value: number, needed: string): never => {
    throw new DualPathError('INVALID_ARGUMENT', `${name} is ${value}; ${needed}`, { name, value });
  };
  const { sizes, fileBytes, depth, sliceS, maxPairs } = settings;
  if (sizes.length === 0) refuse('sizes', 0, 'at least one size is needed');
  for (const size of sizes) {
    if (!(size >= page && size <= maxSizeBytes && size % page === 0))
      refuse('size', size, `a multiple of ${page} up to ${maxSizeBytes} bytes is needed`);
  }
  const least = 16 * Math.max(...sizes);
  if (!Number.isSafeInteger(fileBytes) || fileBytes < least || fileBytes % page !== 0)
    refuse(
      'fileBytes',
      fileBytes,
      `a multiple of ${page}, at least ${least} (16 of the largest size), is needed`,
    );
  if (!Number.isSafeInteger(depth) || depth < 1 || depth > 128) refuse('depth', depth, '1 to 128 is needed');
  if (!(sliceS >= 0.01 && sliceS <= 600)) refuse('sliceS', sliceS, '0.01 to 600 is needed');
  if (!Number.isSafeInteger(maxPairs) || maxPairs < 2) refuse('maxPairs', maxPairs, 'at least 2 is needed');
}

async function makeFolder(directory: string): Promise<string> {
  try {
    return await mkdtemp(join(directory, 'dualpath-bench-'));
  } catch (cause) {
    const { code = '' } = cause as NodeJS.ErrnoException;
    throw new DualPathError(
      'STORAGE_IO',
      `no folder can be made in ${directory} (${code}); name a directory of the disk to measure that you may write to`,
      { directory },
      { cause },
    );
  }
}

async function callBench<T>(call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (cause) {
    throw fromNative(cause);
  }
}

interface Target {
  readonly path: string;
  readonly folder: string;
  readonly sizeBytes: number;
  readonly checksums: BigUint64Array;
}

async function measureSize(settings: Settings, target: Target): Promise<StorageSizeResult> {
  const { sizeBytes } = target;
  const step = (what: string): void => {
    settings.signal?.throwIfAborted();
    settings.onProgress?.(
      `${sizeBytes >= 1 << 20 ? `${sizeBytes / 2 ** 20} MiB` : `${sizeBytes / 1024} KiB`}: ${what}`,
    );
  };
  let seed = 1;
  const ours = (extra: Partial<StorageLoad> = {}): Promise<StorageLoadResult> =>
    callBench(() =>
      native().runStorageLoad({
        kind: 'readRanges',
        path: target.path,
        bytes: sizeBytes,
        places: Math.floor(settings.fileBytes / sizeBytes),
        depth: settings.depth,
        durationNs: Math.round(settings.sliceS * 1e9),
        seed: seed++,
        storageIo: settings.storageIo ?? 'auto',
        ...extra,
      }),
    );
  const comparison = await compare(settings, target, ours, step);
  step('verified');
  const verified: StorageLoadResult[] = [];
  for (let i = 0; i < verifiedSlices; i++) {
    settings.signal?.throwIfAborted();
    verified.push(await ours({ checksums: target.checksums }));
  }
  step('block files through an engine');
  const store = await measureStore(settings, target);
  const { slices, fio } = comparison;
  const figures = figuresOf(slices);
  const estimate = fio.length === 0 ? undefined : estimateRatio(comparison.pairs);
  const fioFigures = fio.length === 0 ? undefined : medians(fio);
  return {
    sizeBytes,
    ...figures,
    slices: slices.length,
    storageIo: slices[0]!.storageIo,
    offload: slices[0]!.offload,
    registeredShare: sum(slices, (slice) => slice.registeredBytes) / sum(slices, (slice) => slice.bytes),
    verified: { ...figuresOf(verified), mismatches: sum(verified, (slice) => slice.mismatches) },
    checksumNsPerByte: median(verified.map((slice) => slice.verifyP50Ns)) / sizeBytes,
    fio: fioFigures,
    ratio: estimate?.ratio,
    ratioHalfWidth: estimate?.halfWidth,
    converged: estimate === undefined ? undefined : estimate.halfWidth <= settings.halfWidth,
    cpuRatio: fioFigures === undefined ? undefined : figures.cpuNsPerByte / fioFigures.cpuNsPerByte,
    store,
  };
}

interface Comparison {
  readonly slices: readonly StorageLoadResult[];
  readonly fio: readonly FioSlice[];
  readonly pairs: readonly (readonly [number, number])[];
}

/** Slices ours, fio, fio, ours, ...: whoever is first in one pair is last in the next. */
async function compare(
  settings: Settings,
  target: Target,
  ours: () => Promise<StorageLoadResult>,
  step: (what: string) => void,
): Promise<Comparison> {
  const slices: StorageLoadResult[] = [];
  const fio: FioSlice[] = [];
  const pairs: [number, number][] = [];
  const yardstick = async (): Promise<number> => {
    const slice = await fioSlice({
      path: target.path,
      fileBytes: settings.fileBytes,
      bytes: target.sizeBytes,
      depth: settings.depth,
      runtimeS: settings.sliceS,
      signal: settings.signal,
    });
    fio.push(slice);
    return slice.bytesPerS;
  };
  const own = async (): Promise<number> => {
    const slice = await ours();
    slices.push(slice);
    return rateOf(slice);
  };
  if (settings.compare === undefined) {
    step('ranges of a file');
    for (let i = 0; i < verifiedSlices; i++) {
      settings.signal?.throwIfAborted();
      await own();
    }
    return { slices, fio, pairs };
  }
  const least = Math.min(minPairs, settings.maxPairs);
  while (pairs.length < settings.maxPairs) {
    const estimate = pairs.length < 2 ? undefined : estimateRatio(pairs);
    if (pairs.length >= least && estimate!.halfWidth <= settings.halfWidth) break;
    const so =
      estimate === undefined
        ? ''
        : `, ratio ${estimate.ratio.toFixed(3)} +- ${estimate.halfWidth.toFixed(3)}`;
    step(`beside fio, pair ${pairs.length + 1} of at most ${settings.maxPairs}${so}`);
    if (pairs.length % 2 === 0) {
      const mine = await own();
      pairs.push([mine, await yardstick()]);
    } else {
      const theirs = await yardstick();
      pairs.push([await own(), theirs]);
    }
  }
  return { slices, fio, pairs };
}

async function measureStore(settings: Settings, target: Target): Promise<StoreReads> {
  const folder = await makeFolder(target.folder);
  try {
    return await measureStoreReads({
      path: folder,
      fileBytes: Math.max(target.sizeBytes, 2 * page),
      storedBytes: Math.min(maxStoredBytes, settings.fileBytes),
      sliceS: settings.sliceS,
      slices: verifiedSlices,
      storageIo: settings.storageIo ?? 'auto',
      signal: settings.signal,
    });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

const rateOf = (slice: StorageLoadResult): number => (slice.bytes / slice.elapsedNs) * 1e9;
const sum = <T>(items: readonly T[], of: (item: T) => number): number =>
  items.reduce((total, item) => total + of(item), 0);

function figuresOf(slices: readonly StorageLoadResult[]): StorageFigures {
  return medians(
    slices.map((slice) => ({
      bytesPerS: rateOf(slice),
      operationsPerS: (slice.operations / slice.elapsedNs) * 1e9,
      cpuNsPerByte: slice.cpuNs / slice.bytes,
      latencyMeanUs: slice.latencyMeanNs / 1000,
      latencyP50Us: slice.latencyP50Ns / 1000,
      latencyP99Us: slice.latencyP99Ns / 1000,
    })),
  );
}

function medians(slices: readonly StorageFigures[]): StorageFigures {
  const of = (key: keyof StorageFigures): number => median(slices.map((slice) => slice[key]));
  return {
    bytesPerS: of('bytesPerS'),
    operationsPerS: of('operationsPerS'),
    cpuNsPerByte: of('cpuNsPerByte'),
    latencyMeanUs: of('latencyMeanUs'),
    latencyP50Us: of('latencyP50Us'),
    latencyP99Us: of('latencyP99Us'),
  };
}
