/** What the add-on exports (bindings/objects.h). Only src/transfer, src/memory, src/storage and src/bench use it. */

export interface NativeArenaFacts {
  readonly bytes: number;
  readonly hugePages: boolean;
  readonly locked: boolean;
  readonly kind: 'host' | 'emulated-hbm';
}

export interface NativeArena {
  facts(): NativeArenaFacts;
  buffer(): ArrayBuffer;
}

export interface NativeRateLink {
  statistics(): { readonly bytes: number; readonly operations: number; readonly busyNs: number };
}

export interface NativeStoreStatistics {
  readonly blocks: number;
  readonly bytes: number;
  readonly probes: number;
  readonly probeErrors: number;
  readonly published: number;
  readonly forgotten: number;
  readonly quarantined: number;
  readonly indexOverflows: number;
}

export interface NativeStore {
  facts(): {
    readonly path: string;
    readonly fileBytes: number;
    readonly payloadBytes: number;
    readonly headerBytes: number;
  };
  statistics(): NativeStoreStatistics;
}

/** Faults for tests (native/core/faults.h); a field left out is off. */
export interface Faults {
  readonly shortReadBytes?: number;
  readonly readErrno?: number;
  readonly readErrorAfter?: number;
  readonly writeErrno?: number;
  readonly writeErrorAfter?: number;
  readonly flipByteAfter?: number;
  readonly readDelayNs?: number;
}

export interface NativeRuntime {
  close(): void;
  setFaults(faults: Faults): void;
}

export interface EngineStatistics {
  readonly readBytes: number;
  readonly readBlocks: number;
  readonly badBlocks: number;
  readonly writeBytes: number;
  readonly writeBlocks: number;
  readonly writeSkippedBlocks: number;
  readonly copyBytes: number;
  readonly copySteps: number;
  readonly sendBytes: number;
  readonly sendSteps: number;
  readonly descriptors: number;
  readonly programs: number;
  readonly failedPrograms: number;
  /** Looks that found a descriptor blocked, by cause. */
  readonly waitsCounter: number;
  readonly waitsLink: number;
  readonly waitsQueue: number;
  /** Whether the store's file system takes O_DIRECT. */
  readonly directIo: boolean;
}

export interface NativePlane {
  readonly offsetBytes: number;
  readonly bytesPerToken: number;
  readonly tokenStrideBytes?: number;
  readonly windowTokens?: number;
}

export interface NativeGeometry {
  readonly arena: NativeArena;
  /** Memory beyond one arena: slots [k * slotsPerArena, (k + 1) * slotsPerArena) lie in the kth of all. */
  readonly moreArenas?: readonly NativeArena[];
  readonly slotsPerArena?: number;
  /** Of each arena's first slot in it. */
  readonly offsetBytes: number;
  readonly slotStrideBytes: number;
  readonly slots: number;
  readonly blockTokens: number;
  readonly layers: readonly { readonly offsetBytes: number; readonly planes: readonly NativePlane[] }[];
}

export interface NativeEngineOptions {
  readonly runtime: NativeRuntime;
  readonly name: string;
  readonly store?: NativeStore | null;
  readonly durable?: boolean;
  readonly storageRead?: NativeRateLink | null;
  readonly storageWrite?: NativeRateLink | null;
  readonly nicEgress?: NativeRateLink | null;
  readonly nicIngress?: NativeRateLink | null;
  readonly submissionEntries?: number;
  readonly completionEntries?: number;
  readonly counterEntries?: number;
  readonly slotEntries?: number;
  readonly keyEntries?: number;
  readonly maxPrograms?: number;
  readonly maxDescriptors?: number;
  readonly storageLookaheadNs?: number;
}

export interface HashRange {
  readonly firstToken: number;
  readonly blockTokens: number;
  readonly blocks: number;
  /** Index in the key table of the block before; left out: the chain's root. */
  readonly parentKey?: number;
  readonly keyOffset: number;
  readonly lookUp: boolean;
}

export interface NativeEngine {
  door(): ArrayBuffer;
  doorbell(): void;
  addGeometry(geometry: NativeGeometry): number;
  connect(name: string): number;
  cancel(program: number): void;
  hash(tokens: Uint32Array, range: HashRange): Promise<number>;
  /** File of the block whose key stands at this entry of the key table; empty without a store. */
  blockPath(key: number): string;
  requestClose(): void;
  detach(): void;
  statistics(): EngineStatistics;
}

export interface NativeBlockPool {
  available(): number;
  take(offset: number, count: number): boolean;
  giveBack(offset: number, count: number): void;
}

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

export interface AbiDescription {
  readonly magic: number;
  readonly version: number;
  readonly keyBytes: number;
  /** Bytes of each struct. */
  readonly structs: Readonly<Record<string, number>>;
  /** Of `struct.field`. */
  readonly fields: Readonly<Record<string, readonly [offset: number, bytes: number]>>;
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

export interface NativeAddon {
  readonly Arena: new (options: {
    name: string;
    bytes: number;
    emulatedHbm?: boolean;
    hugePages?: boolean;
    lock?: 'none' | 'try' | 'require';
  }) => NativeArena;
  readonly RateLink: new (options: { name: string; bytesPerS: number }) => NativeRateLink;
  readonly Store: new (options: {
    path: string;
    identity: string;
    layerBytes: readonly number[];
    salt?: Uint8Array;
    create?: boolean;
    indexCapacity?: number;
  }) => NativeStore;
  readonly Runtime: new (onWake: () => void) => NativeRuntime;
  readonly Engine: new (options: NativeEngineOptions) => NativeEngine;
  readonly BlockPool: new (options: { engine: NativeEngine; slots: number }) => NativeBlockPool;
  readonly KvSeeds: new (tokens: Uint32Array) => NativeKvSeeds;
  readonly EmulatedGpu: new (options: { engine: NativeEngine; lanes: number }) => NativeGpu;
  describeAbi(): AbiDescription;
  measurePostCost(options: {
    chain: number;
    chains: number;
    blockTokens?: number;
    bytesPerToken?: number;
  }): PostCost;
}
