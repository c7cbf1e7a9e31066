/** fio as the yardstick of storage: the same file, request size, depth and registered memory and files. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { DualPathError } from '../errors/index.js';

const execute = promisify(execFile);

export interface FioSlice {
  readonly bytesPerS: number;
  readonly operationsPerS: number;
  /** User and system time of fio's job. */
  readonly cpuNsPerByte: number;
  readonly latencyMeanUs: number;
  readonly latencyP50Us: number;
  readonly latencyP99Us: number;
}

export interface FioOptions {
  readonly path: string;
  readonly fileBytes: number;
  readonly bytes: number;
  readonly depth: number;
  readonly runtimeS: number;
  readonly signal?: AbortSignal | undefined;
}

/** What fio is run with, for whoever wants to run it by hand. */
export function fioArguments(options: FioOptions): string[] {
  return [
    '--name=dualpath',
    `--filename=${options.path}`,
    `--size=${options.fileBytes}`,
    '--ioengine=io_uring',
    '--direct=1',
    '--fixedbufs=1',
    '--registerfiles=1',
    '--rw=randread',
    '--norandommap=1',
    '--randrepeat=0',
    `--bs=${options.bytes}`,
    `--iodepth=${options.depth}`,
    '--time_based=1',
    `--runtime=${Math.round(options.runtimeS * 1000)}ms`,
    '--output-format=json',
  ];
}

/** @throws INVALID_ARGUMENT when fio is not installed */
export async function fioVersion(): Promise<string> {
  try {
    return (await execute('fio', ['--version'])).stdout.trim();
  } catch (cause) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      "there is no fio to compare with; install it (apt-get install fio) or leave out '--compare fio'",
      { program: 'fio' },
      { cause },
    );
  }
}

/** @throws STORAGE_IO when fio fails */
export async function fioSlice(options: FioOptions): Promise<FioSlice> {
  try {
    const { stdout } = await execute('fio', fioArguments(options), {
      maxBuffer: 16 << 20,
      ...(options.signal === undefined ? {} : { signal: options.signal }),
    });
    return parseFio(stdout);
  } catch (cause) {
    options.signal?.throwIfAborted();
    if (cause instanceof DualPathError) throw cause;
    const { stderr = '', message = '' } = cause as { stderr?: string; message?: string };
    const why = stderr.trim().split('\n').at(-1) || message;
    throw new DualPathError('STORAGE_IO', `fio failed: ${why}`, { program: 'fio' }, { cause });
  }
}

interface FioJson {
  readonly jobs?: readonly {
    readonly error?: number;
    readonly usr_cpu?: number;
    readonly sys_cpu?: number;
    readonly read?: {
      readonly io_bytes?: number;
      readonly runtime?: number;
      readonly bw_bytes?: number;
      readonly iops?: number;
      readonly lat_ns?: { readonly mean?: number };
      readonly clat_ns?: { readonly percentile?: Readonly<Record<string, number>> };
    };
  }[];
}

/** The first job of fio's JSON document; lines before it, such as warnings, are passed over. */
export function parseFio(text: string): FioSlice {
  const job = (JSON.parse(text.slice(Math.max(0, text.indexOf('{')))) as FioJson).jobs?.[0];
  const read = job?.read;
  if (job === undefined || read === undefined || job.error !== 0 || !(Number(read.io_bytes) > 0)) {
    throw new DualPathError('STORAGE_IO', `fio read nothing (error ${job?.error ?? 'unknown'})`, {
      program: 'fio',
    });
  }
  const cpuShare = ((job.usr_cpu ?? 0) + (job.sys_cpu ?? 0)) / 100;
  const percentile = read.clat_ns?.percentile ?? {};
  return {
    bytesPerS: read.bw_bytes ?? 0,
    operationsPerS: read.iops ?? 0,
    cpuNsPerByte: (cpuShare * (read.runtime ?? 0) * 1e6) / read.io_bytes!,
    latencyMeanUs: (read.lat_ns?.mean ?? 0) / 1000,
    latencyP50Us: (percentile['50.000000'] ?? 0) / 1000,
    latencyP99Us: (percentile['99.000000'] ?? 0) / 1000,
  };
}
