/** What carries bytes from an engine to others: loopback within a process, shared memory between processes, verbs. */
import { DualPathError } from '../errors/index.js';
import type { TransferEngine } from '../transfer/index.js';

/** What carried the bytes, for reports. */
export interface TransportFacts {
  readonly transport: 'loopback' | 'shared-memory' | 'verbs';
  /** RDMA device and port; the traffic class that KV-Cache goes in, and its DSCP or SL; null on loopback. */
  readonly device: string | null;
  readonly trafficClass: string | null;
  /** An emulated provider, not a device. */
  readonly emulated: boolean;
  /** KV-Cache bytes sent to other engines, and over how many connections, those built anew included. */
  readonly sentBytes: number;
  readonly sentBytesTo: readonly { readonly peer: string; readonly bytes: number }[];
  readonly connections: number;
  readonly rebuilt: number;
  /** From the loss of a connection until it carried bytes again: the longest. */
  readonly longestOutageMs: number;
}

export interface Transport {
  /**
   * The handle of another engine for descriptors, once bytes can go there. Held, and not closed as idle, until
   * release(). @throws PEER_LOST, CANCELLED by the signal, and why no connection can be made
   */
  acquire(peer: string, signal?: AbortSignal): Promise<number>;
  release(peer: string): void;
  /** A peer that comes back under its name is another one. */
  forget(peer: string): void;
  facts(): TransportFacts;
  /** Peers no longer reach this engine's memory. Idempotent. */
  close(): Promise<void>;
}

export type OpenTransport = (engine: TransferEngine) => Transport;

/** Engines of one process. @param prefix of the network's names */
export class LoopbackTransport implements Transport {
  readonly #engine: TransferEngine;
  readonly #prefix: string;
  readonly #peers = new Map<string, number>();

  constructor(engine: TransferEngine, prefix: string) {
    this.#engine = engine;
    this.#prefix = prefix;
  }

  // async, so that a peer that is not there becomes a rejection
  async acquire(name: string, signal?: AbortSignal): Promise<number> {
    if (signal?.aborted === true)
      throw new DualPathError('CANCELLED', `no connection to '${name}' is wanted any more`);
    let peer = this.#peers.get(name);
    if (peer === undefined) {
      peer = this.#engine.connect(this.#prefix + name);
      this.#peers.set(name, peer);
    }
    return peer;
  }

  release(): void {
    // Nothing is held: it costs nothing.
  }

  forget(name: string): void {
    this.#peers.delete(name);
  }

  facts(): TransportFacts {
    return {
      transport: 'loopback',
      device: null,
      trafficClass: null,
      emulated: true,
      sentBytes: this.#engine.statistics().sendBytes,
      sentBytesTo: [], // the links of emulated NICs count that
      connections: this.#peers.size,
      rebuilt: 0,
      longestOutageMs: 0,
    };
  }

  async close(): Promise<void> {
    // The engine's end is its peers' end.
  }
}
