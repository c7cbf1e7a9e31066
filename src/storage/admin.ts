/**
 * A store directory without its model: what `dualpath store` and a supervisor's own jobs use. The manifest
 * holds the layout's identity, the directory what a block consists of; no salt is needed.
 */
import {
  callNative,
  fromNative,
  native,
  type BlockFaults,
  type FileCount,
  type NativeCollectResult,
  type NativeStoreTool,
  type NativeSweepResult,
} from '../binding/index.js';
import { DualPathError } from '../errors/index.js';

export interface AdminOptions {
  /** Ends the job early, with what it has done until then. */
  readonly signal?: AbortSignal;
  /** Called a few times a second; `total` may be 0 while it is not known. */
  readonly onProgress?: (done: number, total: number) => void;
}

export interface StoreNamespace {
  /** '' is the default one. */
  readonly name: string;
  readonly blocks: number;
  readonly bytes: number;
}

export interface StoreReport {
  readonly path: string;
  readonly identity: string;
  /** Of the layout; 0 where the store was made by a version that did not note it. */
  readonly layers: number;
  readonly blockFileBytes: number;
  readonly blocks: number;
  readonly bytes: number;
  readonly namespaces: readonly StoreNamespace[];
  /** Blocks by the time since their last use; each bucket without the ones before, the last without limit. */
  readonly ages: readonly {
    readonly underS: number | null;
    readonly blocks: number;
    readonly bytes: number;
  }[];
  readonly oldestS: number;
  /** Files among the blocks that are not named like one. */
  readonly foreignNames: number;
  readonly quarantined: FileCount;
  /** Blocks being written, or left by a writer that died. */
  readonly temps: FileCount;
  /** Deleted namespaces whose files are still there. */
  readonly trashNamespaces: number;
  /** Open stores: of this host, and of others where the directory is shared. */
  readonly processes: readonly {
    readonly pid: number;
    readonly thisHost: boolean;
    readonly dead: boolean;
    readonly capacityBytes: number;
  }[];
  /** The smallest of the living processes' capacities, which is the one that holds; null where none has one. */
  readonly capacityBytes: number | null;
}

export interface VerifyOptions extends AdminOptions {
  /** What becomes of a bad block; default 'report'. */
  readonly action?: 'report' | 'quarantine' | 'delete';
  /** Blocks to read at most. */
  readonly limit?: number;
  /** `resume` of an earlier report: go on behind it. */
  readonly resume?: string;
  /** Blocks read at a time, 1 to 64; default 4. */
  readonly threads?: number;
}

export interface VerifyReport {
  readonly blocks: number;
  readonly bytes: number;
  readonly goodBlocks: number;
  readonly badBlocks: number;
  /** Evicted or deleted between listing and reading: no fault. */
  readonly vanishedBlocks: number;
  readonly removedBlocks: number;
  readonly failedRemovals: number;
  readonly faults: BlockFaults;
  readonly unreadableBlocks: number;
  /** The first hundred bad blocks. */
  readonly bad: readonly {
    readonly namespace: string;
    readonly key: string;
    readonly fault: string;
    readonly layer: number;
    readonly errno: number;
  }[];
  /** Where to go on when not all blocks were read; null when they were. */
  readonly resume: string | null;
}

export interface GcOptions extends AdminOptions {
  /** Evict the oldest blocks until those left take at most this much; left out: evict nothing. */
  readonly capacityBytes?: number;
  /** Count, but remove nothing. */
  readonly dryRun?: boolean;
  /** Remove all quarantined blocks, not only those older than a day. */
  readonly allQuarantined?: boolean;
}

export interface GcReport extends NativeSweepResult {
  /** Undefined without a capacity. */
  readonly eviction?: NativeCollectResult;
}

export interface DeleteReport {
  readonly blocks: number;
  readonly bytes: number;
  readonly failed: number;
  readonly lastErrno: number;
}

const ageLimitsS = [60, 3600, 86_400, 7 * 86_400, null] as const;
const progressEveryMs = 100;

export class StoreAdmin {
  readonly path: string;
  readonly #tool: NativeStoreTool;

  private constructor(path: string, tool: NativeStoreTool) {
    this.path = path;
    this.#tool = tool;
  }

  /** @throws STORE_MISMATCH when the directory is no store or of another version, STORAGE_IO */
  static open(path: string): StoreAdmin {
    return new StoreAdmin(
      path,
      callNative(() => new (native().StoreTool)(path)),
    );
  }

  async stat(options: AdminOptions = {}): Promise<StoreReport> {
    const { identity, layers, blockFileBytes } = this.#tool.facts();
    const survey = await this.#run(options, () => this.#tool.survey());
    const blocksOf = ({ files, bytes }: FileCount): { blocks: number; bytes: number } => ({
      blocks: files,
      bytes,
    });
    const capacities = survey.processes
      .filter(({ dead, capacityBytes }) => !dead && capacityBytes > 0)
      .map(({ capacityBytes }) => capacityBytes);
    return {
      ...{ path: this.path, identity, layers, blockFileBytes },
      ...blocksOf(survey.blocks),
      namespaces: survey.namespaces.map((space) => ({ name: space.name, ...blocksOf(space) })),
      ages: survey.ages.map((count, i) => ({ underS: ageLimitsS[i] ?? null, ...blocksOf(count) })),
      oldestS: survey.oldestS,
      foreignNames: survey.foreignNames,
      quarantined: survey.quarantined,
      temps: survey.temps,
      trashNamespaces: survey.trashNamespaces,
      processes: survey.processes,
      capacityBytes: capacities.length === 0 ? null : Math.min(...capacities),
    };
  }

  /** Reads blocks and checks every byte. @throws STORE_MISMATCH without store.layers */
  async verify(options: VerifyOptions = {}): Promise<VerifyReport> {
    const { signal, onProgress, ...wanted } = options;
    const { listed, resume, ...counts } = await this.#run(options, () => this.#tool.verify(wanted));
    return { ...counts, bad: listed, resume: resume === '' ? null : resume };
  }

  /** Removes what dead processes left, old quarantined blocks, trash; then evicts. */
  async gc(options: GcOptions = {}): Promise<GcReport> {
    const { capacityBytes, dryRun = false, allQuarantined = false } = options;
    const swept = await this.#run(options, () => this.#tool.sweep({ dryRun, allQuarantined }));
    if (capacityBytes === undefined || options.signal?.aborted === true) return swept;
    const eviction = await this.#run(options, () =>
      this.#tool.collect({ targetBytes: capacityBytes, dryRun }),
    );
    return { ...swept, eviction };
  }

  /**
   * The namespace is gone at once; its files are removed before this resolves, or by the next gc.
   * @throws INVALID_ARGUMENT when there is none of that name
   */
  async deleteNamespace(name: string, options: AdminOptions = {}): Promise<DeleteReport> {
    const { found, trash, failed, lastErrno } = await this.#run(options, () =>
      this.#tool.deleteNamespace(name),
    );
    if (!found) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `block store ${this.path}: there is no namespace '${name}'; 'dualpath store stat' lists them`,
        { path: this.path, namespace: name },
      );
    }
    return { blocks: trash.files, bytes: trash.bytes, failed, lastErrno };
  }

  async #run<T>(options: AdminOptions, job: () => Promise<T>): Promise<T> {
    const { signal, onProgress } = options;
    const stop = (): void => this.#tool.stop();
    signal?.addEventListener('abort', stop, { once: true });
    const timer =
      onProgress &&
      setInterval(() => {
        const { done, total } = this.#tool.progress();
        onProgress(done, total);
      }, progressEveryMs);
    try {
      const result = callNative(job);
      if (signal?.aborted === true) stop();
      return await result;
    } catch (cause) {
      throw fromNative(cause);
    } finally {
      clearInterval(timer);
      signal?.removeEventListener('abort', stop);
    }
  }
}
