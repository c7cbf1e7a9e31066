/** What copies an engine's KV between its host memory and its GPU's: the NIC, or the CPU and CUDA's driver. */
import type { NativeStubFabric } from '../binding/index.js';
import { isDualPathError } from '../errors/index.js';
import { CopyNic, findCopyPlace, type TrafficClasses } from '../rdma/index.js';
import type { TransferEngine } from '../transfer/index.js';

/**
 * nic: loopback RDMA writes on a NIC, or failure. memcpy: never the NIC. auto: the NIC that is configured or near the GPU on
 * PCI, else memcpy; what the NIC cannot carry memcpy does.
 */
export type CopyWay = 'auto' | 'nic' | 'memcpy';

export interface CopyOptions {
  readonly way: CopyWay;
  /** The RDMA device that copies; left out: the nearest to the GPU. */
  readonly device?: string;
  /** The GPU's place; left out: HBM is emulated. */
  readonly gpuPciAddress?: string;
  /** Of all copies on the NIC, at most; default 8 MiB. */
  readonly inFlightBytes?: number;
  readonly classes?: TrafficClasses;
  /** Emulated devices, for tests. */
  readonly provider?: NativeStubFabric;
}

/** What carried the bytes, for reports. */
export interface CopyFacts {
  /** The NIC that is open; null: none. */
  readonly device: string | null;
  /** Why this one, or why none. */
  readonly reason: string;
  readonly emulated: boolean;
  readonly bytes: { readonly nic: number; readonly memcpy: number; readonly cuda: number };
  /** Steps that were to go through the NIC and did not, as it broke or could not reach the memory. */
  readonly refusedSteps: number;
}

export class Copies {
  readonly #engine: TransferEngine;
  readonly #nic: CopyNic | undefined;
  readonly #device: string | null;
  readonly #reason: string;

  /** @param engine with the copyWay that engineCopyWay() says. @throws for way 'nic': why there is no NIC */
  constructor(engine: TransferEngine, options: CopyOptions = { way: 'memcpy' }) {
    this.#engine = engine;
    const { nic, device, reason } = openNic(engine, options);
    this.#nic = nic;
    this.#device = device;
    this.#reason = reason;
  }

  facts(): CopyFacts {
    const { copyBytesByWay: bytes, copyRefusals } = this.#engine.statistics();
    return {
      device: this.#device,
      reason: this.#reason,
      emulated: this.#nic?.statistics().emulated ?? false,
      bytes,
      refusedSteps: copyRefusals.broken + copyRefusals.notRegistered,
    };
  }

  /** Before the engine. What is on the NIC ends. */
  async close(): Promise<void> {
    await this.#nic?.close();
  }
}

/** As the engine takes it. */
export function engineCopyWay({ way }: CopyOptions): 'auto' | 'nic' | 'plain' {
  return way === 'memcpy' ? 'plain' : way;
}

interface Opened {
  readonly nic: CopyNic | undefined;
  readonly device: string | null;
  readonly reason: string;
}

function openNic(engine: TransferEngine, options: CopyOptions): Opened {
  const { way, device, gpuPciAddress, inFlightBytes, classes, provider } = options;
  if (way === 'memcpy') return { nic: undefined, device: null, reason: 'as configured' };
  const more = {
    ...(inFlightBytes === undefined ? {} : { inFlightBytes }),
    ...(classes === undefined ? {} : { classes }),
  };
  try {
    if (provider !== undefined) {
      const emulated = device ?? 'stub0';
      const nic = new CopyNic({ engine, device: emulated, gidIndex: 0, provider, ...more });
      return { nic, device: `${emulated}/1`, reason: 'as configured' };
    }
    const { reason, gidIndex, ...place } = findCopyPlace({
      ...(device === undefined ? {} : { device }),
      ...(gpuPciAddress === undefined ? {} : { gpuPciAddress }),
    });
    const nic = new CopyNic({
      ...{ engine, ...place, ...more },
      ...(gidIndex === undefined ? {} : { gidIndex }),
    });
    return { nic, device: `${place.device}/${place.port}`, reason };
  } catch (error) {
    // What is asked for wrongly is said, whatever the way.
    if (way === 'nic' || !isDualPathError(error) || error.code === 'INVALID_ARGUMENT') throw error;
    return { nic: undefined, device: null, reason: error.message };
  }
}
