/** The verbs transport and its emulated provider as the add-on has them (bindings/verbs_transport.cc, stub_fabric.cc). */
import type { NativeEngine } from './types.js';

export type NativeTrafficClass = 'inference' | 'kv' | 'control';

export interface NativeStubOptions {
  /** Who gives the same name, in whichever worker, has the same devices; options are those of the first. */
  readonly name: string;
  readonly seed?: number;
  /** Named stub0, stub1, ...; default 2. */
  readonly devices?: number;
  /** Random delays, and any order between queue pairs; default true. */
  readonly shuffled?: boolean;
  readonly memlockBytes?: number;
  readonly mtuBytes?: number;
  readonly linkLayer?: 'ethernet' | 'infiniband';
  readonly maxCqEntries?: number;
  readonly maxInlineBytes?: number;
}

/** Emulated RDMA devices of this process (native/verbs/stub): for tests, never for data of a user. */
export interface NativeStubFabric {
  /** The nth request from now of a queue pair (0: of any) ends with this ibv_wc_status, named without IBV_WC_. */
  failRequest(qpNum: number, nth: number, status: string): void;
  /** The nth request from now is refused when it is posted. */
  failPost(nth: number, errno: number): void;
  setLink(device: number, up: boolean): void;
  setMemlock(bytes: number): void;
  /** Nothing moves and nothing completes meanwhile. */
  pause(paused: boolean): void;
  counters(): {
    readonly postCalls: number;
    readonly requests: number;
    readonly writes: number;
    readonly writesWithImmediate: number;
    readonly reads: number;
    readonly sends: number;
    readonly signalled: number;
    readonly inlined: number;
    readonly receives: number;
    readonly completions: number;
    readonly errors: number;
    readonly mostOutstanding: number;
    readonly refusedFull: number;
  };
  /** Verbs objects alive. */
  objects(): number;
}

export interface NativeVerbsOptions {
  readonly engine: NativeEngine;
  readonly device: string;
  readonly port?: number;
  /** Left out: no GID (InfiniBand within one subnet). */
  readonly gidIndex?: number;
  /** Left out: libibverbs. */
  readonly provider?: NativeStubFabric;
  /** No other exclusive engine of this host has the port. */
  readonly exclusive?: boolean;
  readonly sendEntries?: number;
  readonly receiveEntries?: number;
  readonly sges?: number;
  readonly inlineBytes?: number;
  /** A chain is posted once it carries so many. */
  readonly chainBytes?: number;
  /** Of a connection; then nothing is posted until some have arrived. */
  readonly inFlightBytes?: number;
  readonly maxConnections?: number;
}

export interface NativeVerbsFacts {
  readonly transport: 'verbs';
  readonly provider: string;
  readonly emulated: boolean;
  /** Whether the process may fork (child_process) with memory registered. */
  readonly forkSafe: boolean;
  readonly device: string;
  readonly port: number;
  readonly gidIndex: number;
  /** 32 hexadecimal digits. */
  readonly gid: string;
  readonly lid: number;
  readonly linkLayer: 'ethernet' | 'infiniband';
  readonly mtuBytes: number;
  readonly active: boolean;
}

/** Memory that a peer may write, as it is told of it: plain JSON. Engines' paged memory is not in it. */
export interface NativeRemoteMemory {
  readonly counterEntries: number;
  readonly geometries: readonly {
    readonly id: number;
    readonly blockTokens: number;
    readonly slots: number;
    readonly slotsPerArena: number;
    readonly offsetBytes: number;
    readonly slotStrideBytes: number;
    readonly layers: readonly {
      readonly offsetBytes: number;
      readonly planes: readonly {
        readonly offsetBytes: number;
        readonly bytesPerToken: number;
        readonly tokenStrideBytes: number;
        readonly windowTokens: number;
      }[];
    }[];
    readonly arenas: readonly {
      /** '0x' and hexadecimal digits. */
      readonly address: string;
      readonly bytes: number;
      readonly key: number;
    }[];
  }[];
}

/** One end of a connection, for the other: plain JSON. */
export interface NativeConnectionHalf {
  readonly qpNum: number;
  readonly psn: number;
  /** Receives posted: the other's first credits. */
  readonly receives: number;
  readonly creditAddress: string;
  readonly creditKey: number;
  readonly gid: string;
  readonly lid: number;
}

export interface NativePath {
  readonly peer: number;
  /** The other end's. */
  readonly half: NativeConnectionHalf;
  readonly mtuBytes: number;
  readonly serviceLevel: number;
  /** Of the IP header: DSCP << 2. */
  readonly trafficClass: number;
  readonly hopLimit?: number;
  /** An ACK is late after 4.096 us * 2^timeout; 17 to 31. */
  readonly timeout?: number;
  readonly retryCount?: number;
  /** 1 to 6: 7 would mean for ever. */
  readonly rnrRetry?: number;
}

export type NativeVerbsEvent =
  /** Its first error; it drains. */
  | {
      readonly kind: 'broke';
      readonly connection: number;
      readonly peer?: number;
      readonly blame: 'local' | 'remote' | 'cancelled';
      readonly cause: string;
    }
  /** Nothing is in flight on it in either direction. */
  | { readonly kind: 'drained'; readonly connection: number; readonly peer?: number }
  | { readonly kind: 'port'; readonly port: number; readonly up: boolean }
  /** The device or its completion queue: nothing of this transport works any more. */
  | { readonly kind: 'device-failed'; readonly cause: string };

export interface NativeQueuePairCounters {
  readonly sentBytes: number;
  /** Each is one ibv_post_send and one signalled completion. */
  readonly chains: number;
  /** Calls of ibv_post_send, those for credits among them: doorbells. */
  readonly postCalls: number;
  readonly requests: number;
  /** Of the send queue, successful. */
  readonly completions: number;
  readonly errors: number;
  /** Completions after the first error. */
  readonly flushed: number;
  readonly refused: number;
  /** Taken in. */
  readonly messages: number;
  readonly announcements: number;
}

export interface NativeVerbsStatistics {
  readonly connections: readonly (NativeQueuePairCounters & {
    readonly connection: number;
    readonly peer?: number;
    readonly peerName?: string;
    readonly trafficClass: NativeTrafficClass;
    readonly state: 'initialised' | 'ready' | 'draining' | 'drained';
    readonly qpNum: number;
    readonly credits: number;
    readonly inFlightBytes: number;
  })[];
  /** Of connections that have been closed. */
  readonly closed: NativeQueuePairCounters;
  readonly connectionsOpened: number;
  /** From peers, and not understood. */
  readonly badSignals: number;
  readonly completionQueueEntries: number;
  readonly completionQueueEntriesUsed: number;
}

/** One engine on one port of an RDMA device. All but facts() and takeEvents() wait for the reactor's thread. */
export interface NativeVerbsTransport {
  facts(): NativeVerbsFacts;
  /** Registers what the engine's geometries lie in, once. @throws MEMORY_LIMIT, RDMA_FAILED */
  memory(): NativeRemoteMemory;
  /** @returns a peer for descriptors; its steps fail until it has a connection of their class */
  addPeer(name: string, memory: NativeRemoteMemory): number;
  open(options: { readonly trafficClass: NativeTrafficClass; readonly gidIndex?: number }): {
    readonly connection: number;
    readonly half: NativeConnectionHalf;
  };
  /** The peer's connection of its class from now on; the one before is closed. */
  connect(connection: number, path: NativePath): void;
  /** To the error state; `drained` follows. */
  drain(connection: number): void;
  /** Destroys the queue pair; what is in flight fails. No event follows. */
  close(connection: number): void;
  /** The runtime wakes its record takers when there are some. */
  takeEvents(): NativeVerbsEvent[];
  statistics(): NativeVerbsStatistics;
  /** Drains every connection, and opens none any more. The engine's closing does so, too. */
  shutdown(): void;
}
