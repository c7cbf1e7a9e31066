/**
 * One per engine: its buffer, its store, its peers and the programs that move bytes between them. This is
 * the base level, for an engine that has its own scheduler and its own paged KV memory: look up, load, save,
 * cancel. PrefillEngine and DecodeEngine (src/engine) stand on it.
 */
import type { NativeGeometry, NativeNicLink, NativePages, NativeRateLink } from '../binding/index.js';
import { callNative, native } from '../binding/index.js';
import { DualPathError } from '../errors/index.js';
import type { BlockLayout } from '../layout/index.js';
import { BlockSpace, bufferGeometry } from '../memory/index.js';
import { portArbitration, type Arbitration, type TrafficClasses } from '../rdma/index.js';
import type { BlockStore } from '../storage/index.js';
import { TransferEngine, type Runtime } from '../transfer/index.js';
import { tableShape, writeBlockTable, type BlockTable, type TableShape } from './block-table.js';
import { Copies, engineCopyWay, type CopyOptions } from './copies.js';
import { Interruption, type CallOptions } from './interruption.js';
import { KeyChain } from './key-chain.js';
import { LoadOperation, type LoadOptions } from './load.js';
import { SaveOperation, type SaveOptions } from './save.js';
import { LoopbackTransport, type OpenTransport, type Transport } from './transport.js';

/** Emulated links with a rate; NICs of one name are one NIC, also across worker threads. 0: not limited. */
export interface LinkOptions {
  /** The node's storage NIC, bytes a second in each direction. */
  readonly storage: {
    readonly name: string;
    readonly readBytesPerS: number;
    readonly writeBytesPerS: number;
  };
  /** The engine's compute NIC, bytes a second in each direction; classes and tables left out: the defaults. */
  readonly compute: {
    readonly name: string;
    readonly bytesPerS: number;
    readonly classes?: TrafficClasses;
    readonly arbitration?: Arbitration;
  };
}

export interface TrafficManagerOptions {
  /** Unique among the engines of its network. */
  readonly name: string;
  /** Engines of one network meet by name; left out: the one that all others of this process are in. */
  readonly network?: string;
  readonly layout: BlockLayout;
  readonly store: BlockStore;
  /** Full Blocks the buffer in host memory holds. */
  readonly bufferBlocks: number;
  /** Left out: nothing is emulated or limited. */
  readonly links?: LinkOptions;
  readonly runtime?: Runtime;
  /** What carries bytes to other engines; left out: loopback, to engines of this process. */
  readonly transport?: OpenTransport;
  /** What copies between buffer and HBM; left out: memcpy, or CUDA's driver. */
  readonly copies?: CopyOptions;
  /** Memory that peers write can be shared with other processes, as the transport over shared memory needs. */
  readonly sharedMemory?: boolean;
  /** Written blocks are fsynced before they are published; default false. */
  readonly durable?: boolean;
  /** Tokens of the longest request, for sizing tables; default 1,048,576. */
  readonly maxTokens?: number;
  /** Most pages a block has in the engine's page tables, for sizing tables; default 4. */
  readonly pagesPerBlock?: number;
}

export interface Links {
  readonly storageRead: NativeRateLink;
  readonly storageWrite: NativeRateLink;
  readonly nicEgress: NativeNicLink;
  readonly nicIngress: NativeNicLink;
}

/** Threads that hash are few; more would only wait there. */
const maxLookups = 1024;

export class TrafficManager {
  readonly name: string;
  readonly layout: BlockLayout;
  readonly store: BlockStore;
  readonly engine: TransferEngine;
  /** The PE buffer or DE buffer: Full Blocks in host memory. */
  readonly buffer: BlockSpace;
  readonly links: Links | undefined;
  readonly transport: Transport;
  readonly copies: Copies;
  readonly sharedMemory: boolean;
  readonly #shapes = new Map<number, TableShape>();
  #lookups = 0;

  constructor(options: TrafficManagerOptions) {
    const { layout, store, links } = options;
    if (store.layout.identity !== layout.identity) {
      throw new DualPathError(
        'STORE_MISMATCH',
        `engine '${options.name}' and store '${store.path}' have different layouts; open a store of the engine's own`,
        { engine: layout.identity, store: store.layout.identity },
      );
    }
    this.name = options.name;
    const prefix = options.network === undefined ? '' : `${options.network}/`;
    this.layout = layout;
    this.store = store;
    this.links = links === undefined ? undefined : openLinks(links);
    this.sharedMemory = options.sharedMemory ?? false;
    const memory = bufferGeometry(
      layout,
      store.file,
      options.bufferBlocks,
      `${options.name}/buffer`,
      this.sharedMemory,
    );
    const sequenceBlocks = layout.blocksFor(options.maxTokens ?? 1 << 20);
    this.engine = new TransferEngine({
      name: prefix + options.name,
      store: store.handle,
      ...(options.runtime === undefined ? {} : { runtime: options.runtime }),
      ...(options.durable === undefined ? {} : { durable: options.durable }),
      ...this.links,
      copyWay: engineCopyWay(options.copies ?? { way: 'memcpy' }),
      keyEntries: powerAtLeast(Math.max(4 * sequenceBlocks, 1 << 14), 1 << 20),
      slotEntries: powerAtLeast(
        Math.max(4 * (options.pagesPerBlock ?? 4) * (sequenceBlocks + options.bufferBlocks), 1 << 16),
        1 << 24,
      ),
    });
    this.buffer = new BlockSpace(this.engine, memory);
    this.transport = options.transport?.(this.engine) ?? new LoopbackTransport(this.engine, prefix);
    this.copies = new Copies(this.engine, options.copies);
  }

  /**
   * Registers the engine's own KV memory: pages (engineGeometry) or slots in an Arena. It stays the engine's, and
   * must stay where it is until close() has resolved.
   * @throws INVALID_ARGUMENT for memory too small and for places that overlap, CAPACITY_EXHAUSTED
   */
  adopt(geometry: NativeGeometry | NativePages): number {
    const id = this.engine.addGeometry(geometry);
    this.#shapes.set(id, tableShape(geometry));
    return id;
  }

  /** What block tables of an adopted geometry look like. @throws INVALID_ARGUMENT */
  tableShape(geometry: number): TableShape {
    const shape = this.#shapes.get(geometry);
    if (shape !== undefined) return shape;
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `engine '${this.name}' has adopted no geometry ${geometry}; pass what adopt() returned`,
      { engine: this.name, geometry },
    );
  }

  /**
   * The transport's handle of another engine, once bytes can go there; releasePeer() when nothing is sent to it any
   * more. @throws PEER_LOST, CANCELLED by the signal
   */
  async peer(name: string, signal?: AbortSignal): Promise<number> {
    return await this.transport.acquire(name, signal);
  }

  releasePeer(name: string): void {
    this.transport.release(name);
  }

  /** A peer that came back under its name must be connected anew. */
  forgetPeer(name: string): void {
    this.transport.forget(name);
  }

  /**
   * How much of a prompt is stored. No data is read; hashing and look-up run off the JavaScript thread. At
   * least one token is always left to compute. `tokens` must not change until it resolves. Release the chain
   * when no operation uses it any more.
   * @throws CANCELLED, DEADLINE, CAPACITY_EXHAUSTED when too many are under way or the key table is full, CLOSED
   */
  async lookup(tokens: Uint32Array, options: CallOptions = {}): Promise<KeyChain> {
    return await this.#chain(tokens, true, options);
  }

  /** Keys without asking what is stored. @throws as lookup() */
  async hash(tokens: Uint32Array, options: CallOptions = {}): Promise<KeyChain> {
    return await this.#chain(tokens, false, options);
  }

  async #chain(tokens: Uint32Array, lookUp: boolean, options: CallOptions): Promise<KeyChain> {
    const interruption = new Interruption(options);
    try {
      interruption.throwIfStopped('the look-up');
      if (this.#lookups >= maxLookups) {
        throw new DualPathError(
          'CAPACITY_EXHAUSTED',
          `engine '${this.name}': ${maxLookups} look-ups are under way, the most that may; wait for one to end`,
          { lookups: this.#lookups, limit_lookups: maxLookups },
        );
      }
      this.#lookups++;
      try {
        // What is stopped has ended with the look-up: until then it writes the key table.
        const chain = await KeyChain.hash(this.engine, this.layout, tokens, lookUp, 0, interruption.signal);
        if (interruption.stopped) chain.release();
        interruption.throwIfStopped('the look-up');
        return chain;
      } catch (error) {
        throw interruption.explain(error);
      } finally {
        this.#lookups--;
      }
    } finally {
      interruption.end();
    }
  }

  /**
   * Blocks of adopted memory as a list of the slot table, for programs and kernels of the engine's own: `blocks`
   * blocks from `offset` on. Release it when nothing that refers to it is in flight.
   * @throws INVALID_ARGUMENT, CAPACITY_EXHAUSTED
   */
  list(options: {
    readonly geometry: number;
    readonly firstBlock?: number;
    readonly blocks: number;
    readonly blockTable: BlockTable;
  }): { readonly offset: number; release(): void } {
    const { geometry, firstBlock = 0, blocks, blockTable } = options;
    const { blockTokens } = this.layout;
    const shape = this.tableShape(geometry);
    const tokenBegin = firstBlock * blockTokens;
    const tokenEnd = tokenBegin + blocks * blockTokens;
    const span = { firstBlock, blocks, tokenBegin, tokenEnd, windowEnd: 0 };
    const offset = writeBlockTable(this.engine, geometry, shape, span, blockTable);
    let held = true;
    const release = (): void => {
      if (held) this.engine.slotTable.giveBack(offset, blocks * shape.entriesPerBlock);
      held = false;
    };
    return { offset, release };
  }

  /** Stored blocks into the engine's paged memory, layer by layer; through the buffer, in the background. */
  load(options: LoadOptions): LoadOperation {
    return new LoadOperation(this, options);
  }

  /** Computed blocks from the engine's paged memory into the store. */
  save(options: SaveOptions): SaveOperation {
    return new SaveOperation(this, options);
  }

  /** Ends every operation (CLOSED), then lets go of all memory. Idempotent. */
  async close(): Promise<void> {
    await this.transport.close();
    await this.copies.close();
    await this.engine.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

function openLinks({ storage, compute }: LinkOptions): Links {
  const link = (name: string, bytesPerS: number): NativeRateLink =>
    callNative(() => new (native().RateLink)({ name, bytesPerS }));
  const arbitration = portArbitration(compute.classes, compute.arbitration);
  const nic = (direction: string): NativeNicLink =>
    callNative(
      () =>
        new (native().NicLink)({
          name: `${compute.name}/${direction}`,
          bytesPerS: compute.bytesPerS,
          arbitration,
        }),
    );
  return {
    storageRead: link(`${storage.name}/read`, storage.readBytesPerS),
    storageWrite: link(`${storage.name}/write`, storage.writeBytesPerS),
    nicEgress: nic('egress'),
    nicIngress: nic('ingress'),
  };
}

function powerAtLeast(value: number, most: number): number {
  return Math.min(2 ** Math.ceil(Math.log2(value)), most);
}
