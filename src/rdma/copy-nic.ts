/**
 * Copies between host memory and a GPU's through its NIC, as loopback RDMA writes (native/rdma/copy_nic.h): so that one
 * arbiter, the NIC's, sees all that moves to and from a GPU.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import {
  callNative,
  native,
  type CopyNicStatistics,
  type NativeCopyNic,
  type NativeStubFabric,
} from '../binding/index.js';
import { isDualPathError } from '../errors/index.js';
import type { TransferEngine } from '../transfer/index.js';
import { addressFields, defaultTrafficClasses, type TrafficClasses } from './classes.js';
import type { LinkLayer } from './gid.js';

export interface CopyNicOptions {
  /** Whose copies it carries, from now on until it is closed; an engine has one. */
  readonly engine: TransferEngine;
  readonly device: string;
  /** Default 1. */
  readonly port?: number;
  /** Needed on RoCE; discovery ranks them. */
  readonly gidIndex?: number;
  readonly linkLayer?: LinkLayer;
  /** Copies are in class kv. */
  readonly classes?: TrafficClasses;
  /** Of all copies under way, at most; default 8 MiB. */
  readonly inFlightBytes?: number;
  /** Emulated devices, for tests and benchmarks. */
  readonly provider?: NativeStubFabric;
}

/** What is in flight takes a second at most. */
const closingPollMs = 2;

export class CopyNic {
  readonly #handle: NativeCopyNic;
  #closing: Promise<void> | undefined;

  /** @throws RDMA_UNAVAILABLE, INVALID_ARGUMENT, CAPACITY_EXHAUSTED, RDMA_FAILED */
  constructor(options: CopyNicOptions) {
    const { engine, classes = defaultTrafficClasses, linkLayer = 'ethernet', ...rest } = options;
    const fields = addressFields(classes.kv, linkLayer);
    this.#handle = callNative(() => new (native().CopyNic)({ ...rest, ...fields, engine: engine.handle }));
  }

  statistics(): CopyNicStatistics {
    return callNative(() => this.#handle.statistics());
  }

  /**
   * Copies go the other way from now on; what is in flight ends, or is copied once more (copyWay 'nic': fails). Afterwards
   * the engine can have another. Idempotent. Not needed where the engine is closed.
   */
  close(): Promise<void> {
    this.#closing ??= this.#end();
    return this.#closing;
  }

  async #end(): Promise<void> {
    try {
      while (!callNative(() => this.#handle.end())) await sleep(closingPollMs);
    } catch (error) {
      if (!isDualPathError(error, 'CLOSED')) throw error; // the runtime has been closed, and this with it
    }
  }
}
