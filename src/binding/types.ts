/** What the add-on exports (bindings/objects.h). Only src/transfer, src/memory and src/storage use it. */

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

/** Bad blocks by what was wrong with them; docs/store.md says what each means. */
export interface BlockFaults {
  readonly truncated: number;
  readonly notABlock: number;
  readonly unknownVersion: number;
  readonly headerCorrupt: number;
  readonly foreign: number;
  readonly wrongKey: number;
  readonly wrongSize: number;
  readonly layerCorrupt: number;
}

/** Of one open store, since it was opened; `blocks` and `bytes`: of its namespace, as far as its index knows. */
export interface NativeStoreStatistics {
  readonly blocks: number;
  readonly bytes: number;
  readonly probes: number;
  readonly probeErrors: number;
  readonly published: number;
  readonly forgotten: number;
  readonly quarantined: number;
  readonly indexOverflows: number;
  readonly indexResets: number;
  /** 0: none, and this process never evicts. */
  readonly capacityBytes: number;
  /** Blocks that collectors of this host have announced, in whichever process. */
  readonly evictionsSeen: number;
  readonly evictedBlocks: number;
  readonly evictedBytes: number;
  readonly evictionFailures: number;
  readonly collections: number;
  /** Blocks whose age was set; was not, as the queue was full; has still to be. */
  readonly agesWritten: number;
  readonly agesDropped: number;
  readonly agesQueued: number;
  /** Blocks that were found but could not be used: each was a miss. */
  readonly missesByCause: BlockFaults & { readonly vanished: number };
  /** Whether the other processes of the host see what this one uses, and it what they evict. */
  readonly sharedWithHost: boolean;
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

export interface FileCount {
  readonly files: number;
  readonly bytes: number;
}

export interface NativeSurvey {
  readonly blocks: FileCount;
  readonly namespaces: readonly (FileCount & { readonly name: string })[];
  readonly ages: readonly FileCount[];
  readonly oldestS: number;
  readonly foreignNames: number;
  readonly quarantined: FileCount;
  readonly temps: FileCount;
  readonly trashNamespaces: number;
  readonly processes: readonly {
    readonly pid: number;
    readonly thisHost: boolean;
    readonly dead: boolean;
    readonly capacityBytes: number;
  }[];
}

export interface NativeVerifyResult {
  readonly blocks: number;
  readonly bytes: number;
  readonly goodBlocks: number;
  readonly badBlocks: number;
  readonly vanishedBlocks: number;
  readonly removedBlocks: number;
  readonly failedRemovals: number;
  readonly faults: BlockFaults;
  readonly unreadableBlocks: number;
  readonly listed: readonly {
    readonly namespace: string;
    readonly key: string;
    readonly fault: string;
    readonly layer: number;
    readonly errno: number;
  }[];
  readonly resume: string;
}

export interface NativeCollectResult {
  readonly stopped: boolean;
  readonly blocks: number;
  readonly bytes: number;
  readonly evictedBlocks: number;
  readonly evictedBytes: number;
  readonly pinnedBlocks: number;
  readonly changedBlocks: number;
  readonly failedBlocks: number;
  readonly lastErrno: number;
}

export interface NativeSweepResult {
  readonly temps: FileCount;
  readonly tempsLeft: FileCount;
  readonly tables: FileCount;
  readonly quarantined: FileCount;
  readonly trash: FileCount;
  readonly failed: number;
  readonly lastErrno: number;
}

/** A store directory for its tools; one job at a time. */
export interface NativeStoreTool {
  facts(): { readonly identity: string; readonly layers: number; readonly blockFileBytes: number };
  progress(): { readonly done: number; readonly total: number };
  stop(): void;
  survey(): Promise<NativeSurvey>;
  verify(options: {
    readonly action?: 'report' | 'quarantine' | 'delete';
    readonly limit?: number;
    readonly resume?: string;
    readonly threads?: number;
  }): Promise<NativeVerifyResult>;
  collect(options: { readonly targetBytes: number; readonly dryRun?: boolean }): Promise<NativeCollectResult>;
  sweep(options: {
    readonly dryRun?: boolean;
    readonly allQuarantined?: boolean;
  }): Promise<NativeSweepResult>;
  deleteNamespace(name: string): Promise<NativeSweepResult & { readonly found: boolean }>;
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
  /** With lookUp the stored blocks stay, for collectors of this host, until they are released. */
  hash(tokens: Uint32Array, range: HashRange): Promise<number>;
  /** Ends the hold on the first `held` blocks of a chain; its first `stored` blocks have been used now. */
  release(keyOffset: number, held: number, stored: number): void;
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
    namespace?: string;
    salt?: Uint8Array;
    create?: boolean;
    indexCapacity?: number;
    capacityBytes?: number;
  }) => NativeStore;
  readonly StoreTool: new (path: string) => NativeStoreTool;
  readonly Runtime: new (onWake: () => void) => NativeRuntime;
  readonly Engine: new (options: NativeEngineOptions) => NativeEngine;
  readonly BlockPool: new (options: { engine: NativeEngine; slots: number }) => NativeBlockPool;
  readonly KvSeeds: new (tokens: Uint32Array) => NativeKvSeeds;
  readonly EmulatedGpu: new (options: { engine: NativeEngine; lanes: number }) => NativeGpu;
  describeAbi(): AbiDescription;
}
