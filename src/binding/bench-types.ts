/** What benchmarks measure in the add-on (bindings/bench.cc, verbs.cc). */
import type { StorageIo } from './types.js';

/** One slice of a storage benchmark (native/uring/storage_load.h). */
export interface StorageLoad {
  readonly kind: 'readRanges' | 'writeRanges' | 'readFiles' | 'writeFiles';
  /** Of the file, or of the directory. */
  readonly path: string;
  /** That one operation moves; a multiple of 4096. */
  readonly bytes: number;
  /** Ranges of that size in the file, or files. */
  readonly places: number;
  /** Operations under way, 1 to 128. */
  readonly depth: number;
  readonly durationNs: number;
  readonly seed?: number;
  readonly durable?: boolean;
  /** Reads: every place once, scattered, and then the end. */
  readonly once?: boolean;
  /** Buffers in huge pages, as an engine's arenas have them; default true. */
  readonly hugePages?: boolean;
  /** XXH3-64 of every place: reads are verified. */
  readonly checksums?: BigUint64Array;
  readonly storageIo?: 'auto' | StorageIo;
}

export interface StorageLoadResult {
  readonly operations: number;
  readonly bytes: number;
  readonly registeredBytes: number;
  readonly elapsedNs: number;
  /** User and system time of the whole process. */
  readonly cpuNs: number;
  readonly latencyMeanNs: number;
  readonly latencyP50Ns: number;
  readonly latencyP99Ns: number;
  /** Of one operation's checksum; a median is not misled by preemption. */
  readonly verifyP50Ns: number;
  readonly mismatches: number;
  readonly storageIo: StorageIo;
  /** The kernel's workers made the calls: the file system is not local, and may make whoever calls it wait. */
  readonly offload: boolean;
}

/** Of the strict stub provider (native/verbs/stub/post_cost.h). */
export interface PostCost {
  readonly requests: number;
  readonly chains: number;
  readonly expandNsPerRequest: number;
  readonly postNsPerRequest: number;
  readonly completeNsPerRequest: number;
  readonly postCalls: number;
  readonly completions: number;
  readonly bytes: number;
}
