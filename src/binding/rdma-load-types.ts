/** Load over RDMA between two ends (native/verbs/load.h, bindings/rdma_load.cc). */

/** What one end tells the other, as plain JSON; 64-bit addresses are hexadecimal. */
export interface RdmaLoadAddress {
  readonly queuePairs: readonly {
    readonly qpNum: number;
    readonly psn: number;
    readonly receives: number;
    readonly creditAddress: string;
    readonly creditKey: number;
  }[];
  readonly memory: string;
  readonly key: number;
  readonly bytes: number;
  readonly lid: number;
  readonly gid: string;
  readonly mtuBytes: number;
}

export interface RdmaLoadOptions {
  readonly device: string;
  readonly port?: number;
  /** -1, or left out: InfiniBand without a global header. */
  readonly gidIndex?: number;
  /** 1 to 64. */
  readonly queuePairs?: number;
  /** Requests outstanding on each, 4 to 16384. */
  readonly depth?: number;
  /** Of the largest message. */
  readonly bytes: number;
}

export interface RdmaLoadPath {
  readonly mtuBytes: number;
  readonly serviceLevel: number;
  readonly trafficClass: number;
}

export interface RdmaLoadRun {
  readonly kind: 'write' | 'read' | 'readLatency' | 'writeLatency' | 'writeAnswer';
  readonly bytes: number;
  /** Requests in a chain, at most half of the depth. */
  readonly chain?: number;
  /** A multiple of the chain; 0: until stop(). */
  readonly requests: number;
  /** Polling before sleeping. */
  readonly spinNs?: number;
  /** After which it is an error. */
  readonly limitNs: number;
}

export interface RdmaLoadResult {
  readonly requests: number;
  readonly bytes: number;
  readonly elapsedNs: number;
  readonly chains: number;
  readonly postCalls: number;
  readonly completions: number;
  readonly latencyNs: Uint32Array;
}

export interface NativeRdmaLoad {
  address(): RdmaLoadAddress;
  connect(peer: RdmaLoadAddress & RdmaLoadPath): void;
  run(run: RdmaLoadRun): Promise<RdmaLoadResult>;
  stop(): void;
  close(): void;
}
