/** What the native half of an engine's verbs transport does, as src/rdma sees it (native/rdma). */
import type { TrafficClassName } from './classes.js';
import type { LinkLayer } from './gid.js';

export interface ConnectionHalf {
  readonly qpNum: number;
  readonly psn: number;
  readonly receives: number;
  /** '0x...' */
  readonly creditAddress: string;
  readonly creditKey: number;
  readonly gid: string;
  readonly lid: number;
}

export type NativeEvent =
  | {
      readonly kind: 'broke';
      readonly connection: number;
      readonly blame: 'local' | 'remote' | 'cancelled';
      readonly cause: string;
    }
  | { readonly kind: 'drained'; readonly connection: number }
  | { readonly kind: 'port'; readonly port: number; readonly up: boolean }
  | { readonly kind: 'device-failed'; readonly cause: string };

export interface ConnectionStatistics {
  readonly connection: number;
  readonly sentBytes: number;
  readonly completions: number;
  readonly inFlightBytes: number;
}

export interface NativeHalf {
  facts(): {
    readonly provider: string;
    readonly emulated: boolean;
    readonly device: string;
    readonly port: number;
    readonly linkLayer: LinkLayer;
    readonly mtuBytes: number;
  };
  /** Where this engine's memory is; every geometry it has is registered. @throws MEMORY_LIMIT */
  memory(): unknown;
  /** @throws INVALID_ARGUMENT when the description cannot be */
  addPeer(name: string, memory: unknown): number;
  open(options: { readonly trafficClass: TrafficClassName; readonly gidIndex?: number }): {
    readonly connection: number;
    readonly half: ConnectionHalf;
  };
  connect(
    connection: number,
    options: {
      readonly peer: number;
      readonly half: ConnectionHalf;
      readonly mtuBytes: number;
      readonly serviceLevel: number;
      readonly trafficClass: number;
      readonly timeout: number;
      readonly retryCount: number;
      readonly rnrRetry: number;
    },
  ): void;
  /** To the error state, at once: the peer can write nothing more through it. `drained` follows. */
  drain(connection: number): void;
  /** Destroys it, whatever is in flight. No event follows. */
  close(connection: number): void;
  takeEvents(): readonly NativeEvent[];
  statistics(): { readonly connections: readonly ConnectionStatistics[] };
  shutdown(): void;
}
