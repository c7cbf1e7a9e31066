/** What the add-on exports (bindings/objects.h). Only src/transfer, src/memory, src/storage and src/bench use it. */
import type { NativeRdmaLoad, RdmaLoadOptions } from './rdma-load-types.js';
import type { PostCost, StorageLoad, StorageLoadResult } from './bench-types.js';
import type { NativeCopyNic, NativeCopyNicOptions, NativeCudaDevice } from './device-types.js';
import type { NativeGpu, NativeKvSeeds } from './emulation-types.js';
import type {
  NativeArena,
  NativeBlockSpan,
  NativeGeometry,
  NativePages,
  NativeRegion,
  NativeRegionOptions,
} from './memory-types.js';
import type { NativeStore, NativeStoreOptions, NativeStoreTool } from './store-types.js';
import type {
  NativeStubFabric,
  NativeStubOptions,
  NativeVerbsOptions,
  NativeVerbsTransport,
} from './verbs-types.js';

export type * from './rdma-load-types.js';
export type * from './bench-types.js';
export type * from './device-types.js';
export type * from './emulation-types.js';
export type * from './memory-types.js';
export type * from './store-types.js';
export type * from './verbs-types.js';

export interface NativeRateLink {
  statistics(): { readonly bytes: number; readonly operations: number; readonly busyNs: number };
}

/** Weights in units of 64 bytes, by virtual lane (native/core/vl_arbiter.h). */
export interface NativeLaneWeight {
  readonly lane: number;
  readonly weight: number;
}

export interface NativeArbitration {
  readonly high: readonly NativeLaneWeight[];
  readonly low: readonly NativeLaneWeight[];
  readonly highLimit: number;
  /** Of each traffic class. */
  readonly lanes: { readonly inference: number; readonly kv: number; readonly control: number };
}

export interface NicLinkClass {
  /** That have crossed. */
  readonly bytes: number;
  /** Queued. */
  readonly transfers: number;
}

export interface NativeNicLink {
  /** bytes and operations are those queued. */
  statistics(): {
    readonly bytes: number;
    readonly operations: number;
    readonly busyNs: number;
    readonly classes: {
      readonly inference: NicLinkClass;
      readonly kv: NicLinkClass;
      readonly control: NicLinkClass;
    };
  };
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
  /** 1: what is read is served whatever its checksums say. */
  readonly acceptBadBlocks?: number;
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
  /** What carried them: the NIC, the CPU, CUDA's driver. */
  readonly copyBytesByWay: { readonly nic: number; readonly memcpy: number; readonly cuda: number };
  /** Steps of copies that the NIC did not carry, by cause. */
  readonly copyRefusals: {
    readonly notWanted: number;
    readonly notOpen: number;
    readonly notRegistered: number;
    readonly broken: number;
  };
  readonly sendBytes: number;
  readonly sendSteps: number;
  readonly descriptors: number;
  readonly programs: number;
  readonly failedPrograms: number;
  /** Looks that found a descriptor blocked, by cause. */
  readonly waitsCounter: number;
  readonly waitsLink: number;
  readonly waitsQueue: number;
  /** The peer's queue was full, or the peer had no receive for a signal. */
  readonly waitsPeer: number;
  /** Signals from peers for an earlier use of their counter: dropped. */
  readonly staleSignals: number;
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

export interface NativeEngineOptions {
  readonly runtime: NativeRuntime;
  readonly name: string;
  readonly store?: NativeStore | null;
  readonly durable?: boolean;
  readonly storageRead?: NativeRateLink | null;
  readonly storageWrite?: NativeRateLink | null;
  readonly nicEgress?: NativeNicLink | null;
  readonly nicIngress?: NativeNicLink | null;
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
  /**
   * auto (default): copies go through the NIC that was opened for them (CopyNic), where it can, else by memcpy or CUDA's
   * driver; nic: nothing else; plain: never the NIC.
   */
  readonly copyWay?: 'auto' | 'nic' | 'plain';
  /** Of copies by CUDA's driver, at most; default 16 MiB. */
  readonly copyInFlightBytes?: number;
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
  /** How a peer names the counter until it is zeroed for its next use (dualpath_ring.h). */
  counterHandle(index: number): number;
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

/** An engine's transport over shared memory (native/shared). */
export interface NativeSharedTransport {
  /** For one sender. @throws INVALID_ARGUMENT without shared memory, CAPACITY_EXHAUSTED */
  invite(): { readonly mailbox: number };
  /** @throws PEER_LOST, INVALID_ARGUMENT when the invitation cannot be */
  addPeer(name: string, invitation: unknown): number;
  /** Whether nothing of that sender is under way. */
  shutOut(mailbox: number): boolean;
  lose(peer: number): void;
  statistics(): {
    readonly sentBytes: readonly { readonly peer: number; readonly bytes: number }[];
    readonly badSignals: number;
    readonly mailboxes: number;
  };
}

export interface NativeBlockPool {
  available(): number;
  take(offset: number, count: number): boolean;
  share(offset: number, count: number): void;
  giveBack(offset: number, count: number): void;
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
    /** Memory of this device: no ArrayBuffer shows it. */
    cuda?: NativeCudaDevice;
    /** A memfd sealed against shrinking, of another process; it stays the caller's. */
    fd?: number;
  }) => NativeArena;
  readonly CudaDevice: new (
    options: ({ ordinal: number } | { pciAddress: string }) & { library?: string },
  ) => NativeCudaDevice;
  readonly CopyNic: new (options: NativeCopyNicOptions) => NativeCopyNic;
  readonly Region: new (options: NativeRegionOptions) => NativeRegion;
  readonly RateLink: new (options: { name: string; bytesPerS: number }) => NativeRateLink;
  /** Left out: the paper's tables. */
  readonly NicLink: new (options: {
    name: string;
    bytesPerS: number;
    arbitration?: NativeArbitration;
  }) => NativeNicLink;
  readonly Store: {
    new (options: NativeStoreOptions): NativeStore;
    /** The same, off the JavaScript thread. */
    open(options: NativeStoreOptions): Promise<NativeStore>;
  };
  readonly StoreTool: new (path: string) => NativeStoreTool;
  readonly Runtime: new (
    onWake: () => void,
    options?: { readonly storageIo?: 'auto' | StorageIo },
  ) => NativeRuntime;
  readonly Engine: new (options: NativeEngineOptions) => NativeEngine;
  readonly StubFabric: new (options: NativeStubOptions) => NativeStubFabric;
  readonly SharedTransport: new (options: { readonly engine: NativeEngine }) => NativeSharedTransport;
  readonly VerbsTransport: new (options: NativeVerbsOptions) => NativeVerbsTransport;
  readonly DoorServer: new (options: { engine: NativeEngine; path: string }) => NativeDoorServer;
  readonly BlockPool: new (options: { engine: NativeEngine; slots: number }) => NativeBlockPool;
  readonly KvSeeds: new (tokens: Uint32Array) => NativeKvSeeds;
  readonly EmulatedGpu: new (options: { engine: NativeEngine; lanes: number }) => NativeGpu;
  readonly RdmaLoad: new (options: RdmaLoadOptions) => NativeRdmaLoad;
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
  /** What an ibv_wc_status means. */
  workStatusText(status: number): string;
  measurePostCost(options: {
    chain: number;
    chains: number;
    blockTokens?: number;
    bytesPerToken?: number;
  }): PostCost;
}
