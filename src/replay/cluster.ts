/** A cluster in one process: every engine with its own traffic manager, door and emulated GPU. */
import { threadId } from 'node:worker_threads';
import { LocalControl } from '../control/index.js';
import { EmulatedGpu } from '../emulation/index.js';
import { DecodeEngine, PrefillEngine, type SequenceResult } from '../engine/index.js';
import { DualPathError } from '../errors/index.js';
import { loggedScheduler } from '../log/index.js';
import { slotBytes } from '../memory/index.js';
import {
  LocalScheduler,
  type EngineCapacity,
  type RequestDescription,
  type RequestFailure,
} from '../scheduler/index.js';
import { BlockStore } from '../storage/index.js';
import { TrafficManager, type LinkOptions } from '../traffic/index.js';
import type { ClusterEvents, ReplayCluster } from './cluster-interface.js';
import { runDecode, runPrefill } from './devices.js';
import {
  decodeSpareBlocks,
  modePlans,
  type ClusterOptions,
  type ModePlan,
  type ReplayMode,
} from './options.js';
import { collect, type ClusterTotals } from './result.js';

interface Sizes {
  readonly prefillBuffer: number;
  readonly decodeBuffer: number;
  readonly staging: number;
  readonly decodeHbm: number;
}

let clusters = 0;

export class Cluster implements ReplayCluster {
  readonly store: BlockStore;
  readonly scheduler: LocalScheduler;
  readonly control = new LocalControl();
  readonly prefill: { readonly node: string; readonly engine: PrefillEngine; readonly gpu: EmulatedGpu }[] =
    [];
  readonly decode: { readonly node: string; readonly engine: DecodeEngine; readonly gpu: EmulatedGpu }[] = [];
  /** Looks prompts up for the scheduler; moves nothing. */
  readonly front: TrafficManager;
  readonly #managers: TrafficManager[] = [];
  readonly #devices: Promise<void>[] = [];
  readonly #scope = `cluster-${threadId}-${++clusters}`;

  private constructor(store: BlockStore, scheduler: LocalScheduler) {
    this.store = store;
    this.scheduler = scheduler;
    const { layout } = store;
    this.front = new TrafficManager({ name: 'front', network: this.#scope, layout, store, bufferBlocks: 1 });
  }

  /** What was opened is closed again when something cannot be. */
  static async open(
    options: ClusterOptions,
    mode: ReplayMode,
    lanes: number,
    events: ClusterEvents,
  ): Promise<Cluster> {
    const { layout } = options;
    const plan = modePlans[mode];
    const store = BlockStore.open({ path: options.storePath, layout });
    const sizes = sizesOf(options, store, plan.layerwise);
    const scheduler = new LocalScheduler(
      {
        engines: capacities(options, sizes),
        policy: plan.policy,
        blockTokens: layout.blockTokens,
        blockBytes: store.file.fileBytes,
        decodeSpareBlocks,
        maxWaiting: 65_536,
        seed: options.seed,
        decisions: options.decisions,
      },
      (failure) => {
        cluster.stop(failure);
        events.failed(failure);
      },
      (failure) => {
        cluster.stop(failure);
        events.retried(failure);
      },
    );
    const cluster: Cluster = new Cluster(store, scheduler);
    try {
      for (const capacity of capacities(options, sizes)) {
        cluster.#add(options, plan, capacity, sizes, lanes, events);
      }
      cluster.#start(options, plan, lanes, events);
    } catch (error) {
      await cluster.close();
      throw error;
    }
    return cluster;
  }

  #add(
    options: ClusterOptions,
    plan: ModePlan,
    { engine, node, role }: EngineCapacity,
    sizes: Sizes,
    lanes: number,
    { prompts, prefilled }: ClusterEvents,
  ): void {
    const traffic = new TrafficManager({
      name: engine,
      network: this.#scope,
      layout: options.layout,
      store: this.store,
      bufferBlocks: role === 'prefill' ? sizes.prefillBuffer : sizes.decodeBuffer,
      links: linksOf(options, this.#scope, node, engine),
      ...(options.copies === undefined ? {} : { copies: options.copies }),
    });
    this.#managers.push(traffic);
    const { control } = this;
    const { log } = options;
    const scheduler = log === undefined ? this.scheduler : loggedScheduler(this.scheduler, log, { engine });
    const common = { traffic, scheduler, group: engine, control, prompts, freeHits: plan.freeHits };
    if (role === 'decode') {
      const decode = new DecodeEngine({ ...common, hbmBlocks: sizes.decodeHbm });
      this.decode.push({ node, engine: decode, gpu: new EmulatedGpu(traffic.engine, lanes) });
      return;
    }
    const prefill = new PrefillEngine({
      ...common,
      stagingBlocks: sizes.staging,
      windowLayers: options.windowLayers,
      layerwise: plan.layerwise,
      timeModel: options.timeModel,
      quotaS: options.quotaS,
      onPrefilled: prefilled,
    });
    this.prefill.push({ node, engine: prefill, gpu: new EmulatedGpu(traffic.engine) });
  }

  #start(options: ClusterOptions, plan: ModePlan, lanes: number, events: ClusterEvents): void {
    const { freeHits } = plan;
    const stepS = options.decodeStepS;
    const hooks = {
      reply: events.reply,
      ended: (request: string, { persistError }: SequenceResult) => events.ended(request, persistError),
      failed: (_request: string, error: unknown) => events.stopped(error),
    };
    this.#devices.push(
      ...this.prefill.map(({ engine, gpu }) => runPrefill(engine, gpu, freeHits, options.layerWatch)),
      ...this.decode.map(({ engine, gpu }) => runDecode(engine, gpu, { lanes, stepS, freeHits }, hooks)),
    );
    for (const device of this.#devices) device.catch(events.stopped);
  }

  submit(request: RequestDescription): Promise<void> {
    return this.scheduler.submit(request);
  }

  idOf(request: string): string {
    return request;
  }

  async totals(): Promise<ClusterTotals> {
    return collect(this);
  }

  /** Ends a request at both its engines. */
  stop({ request, error, assignment }: RequestFailure): void {
    if (assignment === undefined) return;
    const { prefillEngine, decodeEngine, admission } = assignment;
    const cause = error instanceof DualPathError ? error : new DualPathError('INTERNAL', error.message);
    for (const { engine } of [...this.prefill, ...this.decode]) {
      if (engine.name === prefillEngine || engine.name === decodeEngine)
        engine.cancel(request, cause, admission);
    }
  }

  async close(): Promise<void> {
    this.scheduler.close();
    const engines = [...this.prefill, ...this.decode];
    await Promise.all(engines.map(({ engine }) => engine.close()));
    await Promise.allSettled(this.#devices);
    for (const { gpu } of engines) gpu.close();
    await Promise.all([...this.#managers, this.front].map((traffic) => traffic.close()));
  }
}

/** In blocks. @throws INVALID_ARGUMENT for what holds not one */
function sizesOf(options: ClusterOptions, store: BlockStore, layerwise: boolean): Sizes {
  const { layout } = options;
  const blocks = (what: string, bytes: number, blockBytes: number): number => {
    const count = Math.floor(bytes / blockBytes);
    if (count < 1) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `${what}: ${bytes} bytes hold no block of ${blockBytes} bytes; give it at least that`,
        { bytes, least_bytes: blockBytes },
      );
    }
    return count;
  };
  const window = layerwise ? options.windowLayers : layout.layers;
  return {
    prefillBuffer: blocks('prefill buffer', options.prefillBufferBytes, store.file.fileBytes),
    decodeBuffer: blocks('decode buffer', options.decodeBufferBytes, store.file.fileBytes),
    staging: blocks('prefill HBM', options.prefillHbmBytes, slotBytes.staging(layout, window)),
    decodeHbm: blocks('decode HBM', options.decodeHbmBytes, slotBytes.sequence(layout)),
  };
}

function capacities(options: ClusterOptions, sizes: Sizes): EngineCapacity[] {
  const engines: EngineCapacity[] = [];
  const add = (role: 'prefill' | 'decode', nodes: number): void => {
    for (let n = 0; n < nodes; n++) {
      for (let e = 0; e < options.enginesPerNode; e++) {
        const node = `${role}-node-${n}`;
        const engine = `${role}-${n}-${e}`;
        engines.push({
          engine,
          node,
          group: engine,
          role,
          bufferBlocks: role === 'prefill' ? sizes.prefillBuffer : sizes.decodeBuffer,
          hbmBlocks: role === 'prefill' ? 0 : sizes.decodeHbm,
          readRateBytesPerS: options.snicBytesPerS,
        });
      }
    }
  };
  add('prefill', options.prefillNodes);
  add('decode', options.decodeNodes);
  return engines;
}

/** `scope` sets this cluster's links apart, as it does its engines: in a process, links of one name are one link. */
function linksOf(options: ClusterOptions, scope: string, node: string, engine: string): LinkOptions {
  const rate = options.snicBytesPerS;
  return {
    storage: { name: `${scope}/${node}/snic`, readBytesPerS: rate, writeBytesPerS: rate },
    compute: { name: `${scope}/${engine}/cnic`, bytesPerS: options.cnicBytesPerS },
  };
}
