/** Devices that copy (bindings/devices.cc). */
import type { NativeEngine } from './types.js';
import type { NativeStubFabric } from './verbs-types.js';

export interface CudaDeviceFacts {
  readonly ordinal: number;
  readonly name: string;
  /** Such as 0000:3b:00.0. */
  readonly pciAddress: string;
  /** 12040: CUDA 12.4. */
  readonly driverVersion: number;
  readonly gpuDirectRdma: boolean;
  /** Device and driver can export memory as a dma-buf. */
  readonly dmaBuf: boolean;
  /** What a NIC has written is seen by kernels: at once, after a flush by the host, or only after one by a stream. */
  readonly remoteFlush: 'none' | 'host' | 'stream-only';
  readonly flushes: number;
}

export interface NativeCudaDevice {
  facts(): CudaDeviceFacts;
}

export interface NativeCopyNicOptions {
  readonly engine: NativeEngine;
  readonly device: string;
  /** Default 1. */
  readonly port?: number;
  /** Needed on RoCE. */
  readonly gidIndex?: number;
  /** Emulated devices; left out: libibverbs. */
  readonly provider?: NativeStubFabric;
  readonly serviceLevel?: number;
  /** Of the IP header: DSCP << 2. */
  readonly trafficClass?: number;
  readonly sendEntries?: number;
  readonly sges?: number;
  /** Of a chain, at most. */
  readonly chainBytes?: number;
  /** Of all copies under way, at most; default 8 MiB. */
  readonly inFlightBytes?: number;
}

export interface CopyNicStatistics {
  readonly bytes: number;
  readonly chains: number;
  readonly postCalls: number;
  readonly requests: number;
  readonly completions: number;
  readonly errors: number;
  /** Pairs of queue pairs that were made in place of one that broke. */
  readonly rebuilt: number;
  /** Registered with the device, by how it came to the memory. */
  readonly registeredBytes: {
    readonly host: number;
    readonly 'dma-buf': number;
    readonly 'nvidia-peermem': number;
  };
  /** Of the pair that broke last; empty: none did. */
  readonly firstError: string;
  /** Why memory could not be registered; empty: all could. */
  readonly refused: string;
  readonly device: string;
  readonly provider: string;
  readonly emulated: boolean;
}

export interface NativeCopyNic {
  statistics(): CopyNicStatistics;
  /** No copy begins on it any more. False while something of it is in flight: call it again. */
  end(): boolean;
}
