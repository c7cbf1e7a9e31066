/**
 * An emulated GPU: lanes of kernels that take modelled time, wait on and bump an engine's counters, and
 * write and check emulated KV (native/emulation).
 */
import {
  callNative,
  native,
  type GpuStatistics,
  type NativeGpu,
  type NativeKernelBody,
  type NativeKvSeeds,
} from '../binding/index.js';
import { DualPathError } from '../errors/index.js';
import type { Signal, TransferEngine, Wait } from '../transfer/index.js';

/** What the emulated KV of a sequence is made from: each token's depends on all before it. */
export class KvSeeds {
  readonly handle: NativeKvSeeds;
  readonly tokens: number;

  constructor(tokens: Uint32Array) {
    this.handle = callNative(() => new (native().KvSeeds)(tokens));
    this.tokens = tokens.length;
  }
}

export interface KernelLaunch {
  readonly lane?: number;
  /** Kernels, one a layer; default 1. */
  readonly steps?: number;
  /** A single kernel that covers every layer. */
  readonly allLayers?: boolean;
  readonly stepDurationS: number;
  readonly waits?: readonly Wait[];
  readonly signals?: readonly Signal[];
  /** KV the kernels check and write; `seeds` in place of the native object. */
  readonly bodies?: readonly (Omit<NativeKernelBody, 'seeds'> & { readonly seeds: KvSeeds })[];
}

export class EmulatedGpu {
  readonly engine: TransferEngine;
  readonly #handle: NativeGpu;

  constructor(engine: TransferEngine, lanes = 1) {
    this.engine = engine;
    this.#handle = callNative(() => new (native().EmulatedGpu)({ engine: engine.handle, lanes }));
  }

  /** @returns the launch's number, for cancel(). @throws CAPACITY_EXHAUSTED, INVALID_ARGUMENT, CLOSED */
  launch(launch: KernelLaunch): number {
    if (launch.signals?.some((signal) => signal.remote === true) === true) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        'a kernel bumps counters of its own engine: no remote signal',
      );
    }
    const id = callNative(() =>
      this.#handle.launch({
        lane: launch.lane ?? 0,
        steps: launch.steps ?? 1,
        allLayers: launch.allLayers ?? false,
        stepDurationNs: Math.round(launch.stepDurationS * 1e9),
        waits: launch.waits ?? [],
        signals: launch.signals ?? [],
        bodies: (launch.bodies ?? []).map((body) => ({ ...body, seeds: body.seeds.handle })),
      }),
    );
    if (id === 0) {
      throw new DualPathError(
        'CAPACITY_EXHAUSTED',
        `the emulated GPU of '${this.engine.name}' has a full queue`,
      );
    }
    return id;
  }

  /** Runs kernels and resolves when the last has ended. */
  async run(launch: Omit<KernelLaunch, 'signals'>): Promise<void> {
    const counter = this.engine.takeCounters(1);
    try {
      // First who waits, then what is waited for: a kernel once launched bumps the counter whatever comes.
      const over = this.engine.submit([{ op: 'bump', waits: [{ counter, value: launch.steps ?? 1 }] }]);
      try {
        this.launch({ ...launch, signals: [{ counter, value: 1 }] });
      } catch (error) {
        this.engine.cancel(over);
        await over.done.catch(() => undefined);
        throw error;
      }
      await over.done;
    } finally {
      this.engine.counters.giveBack(counter, 1);
    }
  }

  /** Kernels not begun neither wait nor touch memory any more, but still bump their counters. */
  cancel(launch: number): void {
    this.#handle.cancel(launch);
  }

  statistics(): GpuStatistics {
    return this.#handle.statistics();
  }

  close(): void {
    this.#handle.close();
  }
}
