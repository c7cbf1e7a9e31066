/** What the add-on exports (bindings/objects.h). Only src/transfer, src/memory, src/storage and src/bench use it. */

export interface NativeArenaFacts {
  readonly bytes: number;
  readonly hugePages: boolean;
  readonly locked: boolean;
  readonly kind: 'host' | 'emulated-hbm';
}

export interface NativeArena {
  facts(): NativeArenaFacts;
  /** Undefined where the runtime allows no external buffers. */
  buffer(): ArrayBuffer | undefined;
  read(offset: number, bytes: Uint8Array): void;
  write(offset: number, bytes: Uint8Array): void;
}

/** Memory of an engine's own. */
export interface NativeRegion {
  facts(): NativeRegionFacts;
}

export interface NativeRegionFacts {
  readonly name: string;
  readonly bytes: number;
  /** Of its first byte, in this process. */
  readonly address: bigint;
  readonly kind: 'host' | 'emulated-hbm';
  /** Of the slices that devices register, in order. */
  readonly sliceBytes: readonly number[];
}

export type NativeRegionOptions = { readonly name: string; readonly emulatedHbm?: boolean } & (
  | { readonly arena: NativeArena }
  | { readonly buffer: Uint8Array }
  | { readonly address: bigint; readonly bytes: number; readonly owner?: object }
  | { readonly fd: number; readonly offsetBytes?: number; readonly bytes: number }
);

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
  /** Memory for keys of chains hashed before; 0: none. */
  readonly chainCacheBytes: number;
  readonly chainCacheBlocks: number;
  /** Blocks of look-ups whose tokens were compared, and those that had to be hashed. */
  readonly chainHitBlocks: number;
  readonly chainMissBlocks: number;
  readonly chainEvictedBlocks: number;
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
  readonly shortWriteBytes?: number;
  /** Memory is not registered for storage, with this errno. */
  readonly registerErrno?: number;
  readonly readErrno?: number;
  readonly readErrorAfter?: number;
  readonly writeErrno?: number;
  readonly writeErrorAfter?: number;
  readonly flipByteAfter?: number;
  readonly readDelayNs?: number;
}

/** Who makes the calls of storage: io_uring, or a pool of threads where it is refused or not wanted. */
export type StorageIo = 'io_uring' | 'thread_pool';

export interface RuntimeFacts {
  readonly storageIo: StorageIo;
  /** Why io_uring is not used although it was wanted; empty otherwise. */
  readonly storageIoRefused: string;
  /** Arenas whose memory is registered with io_uring now, and those for which that was refused. */
  readonly registeredArenas: number;
  readonly unregisteredArenas: number;
  /** Of the last refusal, 0: none. ENOMEM (12): RLIMIT_MEMLOCK; EOPNOTSUPP (95): a pool of threads. */
  readonly registerErrno: number;
}

export interface NativeRuntime {
  close(): void;
  facts(): RuntimeFacts;
  setFaults(faults: Faults): void;
}

export interface EngineStatistics {
  readonly readBytes: number;
  readonly readBlocks: number;
  readonly badBlocks: number;
  readonly writeBytes: number;
  readonly writeBlocks: number;
  readonly writeSkippedBlocks: number;
  /** Of both, through registered buffers. */
  readonly registeredBytes: number;
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
  /** Looks that found an index of a ring where it cannot be: who writes into the door is at fault. */
  readonly doorErrors: number;
  /** Whether the store's file system takes O_DIRECT. */
  readonly directIo: boolean;
  /** Chains hashed or looked up, and what the pool's threads spent on them. */
  readonly lookups: number;
  readonly lookupBlocks: number;
  readonly lookupHashedBlocks: number;
  readonly lookupCopyNs: number;
  readonly lookupCompareNs: number;
  readonly lookupHashNs: number;
  readonly lookupIndexNs: number;
  readonly storageIo: StorageIo;
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

/** A run of a token's bytes that lies together in a page. */
export interface NativePagePart {
  readonly region: NativeRegion;
  /** Of token 0 of page 0. */
  readonly offsetBytes: number;
  readonly pageStrideBytes: number;
  readonly tokenStrideBytes: number;
  readonly bytes: number;
}

/** An engine's paged memory (native/memory/geometry.h). */
export interface NativePages {
  readonly blockTokens: number;
  readonly tables: readonly { readonly name: string; readonly pages: number; readonly pageTokens: number }[];
  readonly layers: readonly (readonly {
    readonly table: number;
    readonly windowTokens: number;
    readonly parts: readonly NativePagePart[];
  }[])[];
}

/** Blocks of a sequence, and which of their tokens an operation touches. */
export interface NativeBlockSpan {
  readonly firstBlock: number;
  readonly blocks: number;
  readonly tokenBegin: number;
  readonly tokenEnd: number;
  readonly windowEnd: number;
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
  /** The door is for another process: TransferEngine.shareDoor(). */
  readonly shared?: boolean;
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
  /** Undefined where the runtime allows no external buffers: what follows goes by copies. */
  door(): ArrayBuffer | undefined;
  doorLayout(): {
    readonly submissionEntries: number;
    readonly completionEntries: number;
    readonly counterEntries: number;
    readonly slotEntries: number;
    readonly keyEntries: number;
  };
  submissionHead(): number;
  /** Entries [first, first + count) of the submission ring, from a copy of all of it. */
  publish(words: Uint32Array, first: number, count: number): void;
  /** How many records were put there. */
  takeRecords(words: Uint32Array): number;
  counter(index: number): number;
  zeroCounters(first: number, count: number): void;
  writeSlots(offset: number, slots: Uint32Array): void;
  readSlots(offset: number, count: number): Uint32Array;
  doorbell(): void;
  addGeometry(geometry: NativeGeometry): number;
  addPages(pages: NativePages): number;
  /** Checks page tables, one for each of the geometry's, and writes the entries of the blocks. */
  writePages(geometry: number, offset: number, span: NativeBlockSpan, tables: readonly Uint32Array[]): void;
  connect(name: string): number;
  cancel(program: number): void;
  /** With lookUp the stored blocks stay, for collectors of this host, until they are released. */
  hash(
    tokens: Uint32Array,
    id: number,
    firstToken: number,
    blockTokens: number,
    blocks: number,
    keyOffset: number,
    lookUp: boolean,
    parentKey?: number,
  ): Promise<number>;
  cancelHash(id: number): void;
  /** Ends the hold on the first `held` blocks of a chain; its first `stored` blocks have been used now. */
  release(keyOffset: number, held: number, stored: number): void;
  /** File of the block whose key stands at this entry of the key table; empty without a store. */
  blockPath(key: number): string;
  requestClose(): void;
  detach(): void;
  statistics(): EngineStatistics;
}

export interface NativeDoorServer {
  /** producer: its process, 0 for none. */
  state(): {
    readonly producer: number;
    readonly observers: number;
    readonly producersSeen: number;
    readonly refused: number;
  };
  /** Memory that the producer offers; whoever takes it closes the descriptor. */
  takeMemory(): { readonly tag: number; readonly bytes: number; readonly fd: number } | undefined;
  /** 0xffffffff refuses it. */
  answer(tag: number, geometry: number): void;
  close(): void;
}

export interface NativeBlockPool {
  available(): number;
  take(offset: number, count: number): boolean;
  share(offset: number, count: number): void;
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
    /** A memfd sealed against shrinking, of another process; it stays the caller's. */
    fd?: number;
  }) => NativeArena;
  readonly Region: new (options: NativeRegionOptions) => NativeRegion;
  readonly RateLink: new (options: { name: string; bytesPerS: number }) => NativeRateLink;
  readonly Store: new (options: {
    path: string;
    identity: string;
    layerBytes: readonly number[];
    namespace?: string;
    salt?: Uint8Array;
    create?: boolean;
    indexCapacity?: number;
    chainCacheBytes?: number;
    capacityBytes?: number;
  }) => NativeStore;
  readonly StoreTool: new (path: string) => NativeStoreTool;
  readonly Runtime: new (
    onWake: () => void,
    options?: { readonly storageIo?: 'auto' | StorageIo },
  ) => NativeRuntime;
  readonly Engine: new (options: NativeEngineOptions) => NativeEngine;
  readonly DoorServer: new (options: { engine: NativeEngine; path: string }) => NativeDoorServer;
  readonly BlockPool: new (options: { engine: NativeEngine; slots: number }) => NativeBlockPool;
  readonly KvSeeds: new (tokens: Uint32Array) => NativeKvSeeds;
  readonly EmulatedGpu: new (options: { engine: NativeEngine; lanes: number }) => NativeGpu;
  describeAbi(): AbiDescription;
  runStorageLoad(load: StorageLoad): Promise<StorageLoadResult>;
  /** Writes a new file of noise; the XXH3-64 of every range of each size. */
  layOutStorageFile(options: {
    readonly path: string;
    readonly bytes: number;
    readonly sizes: readonly number[];
  }): Promise<BigUint64Array[]>;
  /** Native objects of the whole process, by kind; for tests. */
  liveObjects(): Readonly<Record<string, number>>;
  /** This environment refuses external buffers, as Electron does, or no longer; for tests. */
  refuseExternalBuffers(refuse: boolean): void;
  measurePostCost(options: {
    chain: number;
    chains: number;
    blockTokens?: number;
    bytesPerToken?: number;
  }): PostCost;
}
