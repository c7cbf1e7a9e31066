/** The emulated GPU as the add-on has it (bindings/emulation.cc). */

/** Opaque: the seeds of the emulated KV of a sequence of tokens. */
export interface NativeKvSeeds {
  readonly [nativeKvSeeds]: never;
}
declare const nativeKvSeeds: unique symbol;

export interface NativeKernelBody {
  readonly geometry: number;
  readonly list: number;
  readonly count: number;
  readonly firstBlock: number;
  readonly seeds: NativeKvSeeds;
  readonly checkBegin: number;
  readonly checkEnd: number;
  readonly writeBegin: number;
  readonly writeEnd: number;
  readonly windowEnd: number;
}

export interface NativeLaunch {
  readonly lane: number;
  readonly steps: number;
  readonly allLayers: boolean;
  readonly stepDurationNs: number;
  readonly waits: readonly {
    counter: number;
    value: number;
    counterStep?: number;
    valueStep?: number;
    skipSteps?: number;
  }[];
  readonly signals: readonly { counter: number; value: number; ordered?: boolean; counterStep?: number }[];
  readonly bodies: readonly NativeKernelBody[];
}

export interface GpuStatistics {
  readonly kernels: number;
  readonly modelledNs: number;
  readonly checkedBytes: number;
  readonly mismatchedBytes: number;
  readonly writtenBytes: number;
  readonly overruns: number;
  readonly latenessSumNs: number;
  readonly latenessMaxNs: number;
  /** Bucket b counts kernels bumped 2^b to 2^(b+1) ns after their deadline. */
  readonly latenessLog2Ns: readonly number[];
}

export interface NativeGpu {
  /** Number of the launch, or 0 when the queue is full. */
  launch(launch: NativeLaunch): number;
  cancel(launch: number): void;
  statistics(): GpuStatistics;
  close(): void;
}
