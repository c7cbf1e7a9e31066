/** The block store and its tools as the add-on has them (bindings/store.cc, store_tool.cc). */

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

export interface NativeStoreOptions {
  readonly path: string;
  readonly identity: string;
  readonly layerBytes: readonly number[];
  readonly namespace?: string;
  readonly salt?: Uint8Array;
  readonly create?: boolean;
  readonly indexCapacity?: number;
  readonly chainCacheBytes?: number;
  readonly capacityBytes?: number;
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
