/** One run of an engine process: the engine, its emulated GPU and what they are joined to. */
import {
  addressText,
  parseAddress,
  type ControlNode,
  type EngineControl,
  type Rpc,
} from '../control/index.js';
import { EmulatedGpu } from '../emulation/index.js';
import { DecodeEngine, PrefillEngine, type PromptSource } from '../engine/index.js';
import { DualPathError } from '../errors/index.js';
import { loggedScheduler } from '../log/index.js';
import { slotBytes } from '../memory/index.js';
import { runDecode, runPrefill } from '../replay/index.js';
import { EngineClient } from '../scheduler-client/index.js';
import { LinearTimeModel, type SchedulerClient } from '../scheduler/index.js';
import type { BlockStore } from '../storage/index.js';
import { TrafficManager } from '../traffic/index.js';
import { Canaries } from './canary.js';
import { capacityOf } from './capacity.js';
import type { EngineHostOptions } from './engine-host.js';
import type { EngineJob, EngineTotals } from './protocol.js';
import { RemotePrompts, RemoteScheduler } from './remote-scheduler.js';

let runs = 0;

export interface RunPlace {
  readonly rpc: Rpc;
  readonly control: EngineControl;
  readonly driver: string;
  readonly job: EngineJob;
  readonly store: BlockStore;
}

/** One run: an engine from its opening to its end. */
export class EngineRun {
  readonly driver: string;
  readonly sizes: { readonly bufferBlocks: number; readonly hbmBlocks: number };
  readonly traffic: TrafficManager;
  readonly engine: PrefillEngine | DecodeEngine;
  readonly #rpc: Rpc;
  readonly #job: EngineJob;
  readonly #gpu: EmulatedGpu;
  readonly #prompts: RemotePrompts;
  readonly #canaries: Canaries | undefined;
  /** Of a scheduler that is not the driver. */
  readonly #client: EngineClient | undefined;
  /** Prefill engines that are being dialled. */
  readonly #reaching = new Map<string, Promise<unknown>>();
  readonly #cpuBefore = process.cpuUsage();
  #loop: Promise<void> = Promise.resolve();

  constructor(options: EngineHostOptions, { rpc, control, driver, job, store }: RunPlace) {
    const { role, layout, node, transport, transportKind, copies, network, log } = options;
    this.driver = driver;
    this.#rpc = rpc;
    this.#job = job;
    const { name } = node;
    const window = job.layerwise ? Math.min(job.windowLayers, layout.layers) : layout.layers;
    const hbmBlockBytes = role === 'prefill' ? slotBytes.staging(layout, window) : slotBytes.sequence(layout);
    this.sizes = {
      bufferBlocks: blocksOf('buffer', job.bufferBytes, store.file.fileBytes),
      hbmBlocks: blocksOf('HBM', job.hbmBytes, hbmBlockBytes),
    };
    const { snicBytesPerS, cnicBytesPerS } = job;
    // Each run has links of its own: what they carried counts from its beginning, at its rates.
    const place = `${name}/${++runs}`;
    const traffic = new TrafficManager({
      name,
      ...(network === undefined ? {} : { network }),
      layout,
      store,
      bufferBlocks: this.sizes.bufferBlocks,
      links: {
        storage: { name: `${place}/snic`, readBytesPerS: snicBytesPerS, writeBytesPerS: snicBytesPerS },
        compute: { name: `${place}/cnic`, bytesPerS: cnicBytesPerS },
      },
      ...(transport === undefined ? {} : { transport }),
      ...(copies === undefined ? {} : { copies }),
      sharedMemory: transportKind === 'shared-memory',
    });
    this.traffic = traffic;
    this.#client = this.#join(options, job);
    const client: SchedulerClient = this.#client ?? new RemoteScheduler(rpc, driver);
    const scheduler = log === undefined ? client : loggedScheduler(client, log);
    this.#prompts = new RemotePrompts(rpc, driver);
    const prompts: PromptSource = {
      prompt: async (request) => {
        if (role === 'decode') await this.#reachPrefill(node, request);
        return await this.#prompts.prompt(request);
      },
      maxNewTokens: (request) => this.#prompts.maxNewTokens(request),
    };
    const common = {
      traffic,
      scheduler,
      group: name,
      control,
      prompts,
      freeHits: job.freeHits,
    };
    if (role === 'decode') {
      const decode = new DecodeEngine({ ...common, hbmBlocks: this.sizes.hbmBlocks });
      this.engine = decode;
      this.#gpu = new EmulatedGpu(traffic.engine, job.lanes);
    } else {
      this.engine = new PrefillEngine({
        ...common,
        stagingBlocks: this.sizes.hbmBlocks,
        windowLayers: job.windowLayers,
        layerwise: job.layerwise,
        timeModel: new LinearTimeModel(job.timeModel),
        quotaS: job.quotaS,
        onPrefilled: (request) => rpc.emit(driver, 'prefilled', { request }),
      });
      this.#gpu = new EmulatedGpu(traffic.engine);
    }
    this.#canaries = job.canaries ? new Canaries(traffic, this.#canarySpaces(window)) : undefined;
  }

  #join({ node, role, token }: EngineHostOptions, job: EngineJob): EngineClient | undefined {
    if (job.scheduler === null) return undefined;
    const { endpoint, model } = job.scheduler;
    const capacity = capacityOf(node.name, role, this.sizes, job.snicBytesPerS);
    return new EngineClient({
      endpoints: [endpoint],
      ...{ model, group: node.name, ...(token === undefined ? {} : { token }) },
      engines: [{ capacity, addresses: { control: addressText(node.address!) } }],
      onRevoked: (request, error, admission) => this.engine.cancel(request, error, admission),
    });
  }

  /** The decode engine speaks first, and so dials, where the scheduler says that the other is. */
  async #reachPrefill(node: ControlNode, request: string): Promise<void> {
    const assignment = this.#client?.detailsOf(request)?.assignment;
    if (assignment === undefined) return;
    const { prefillEngine } = assignment;
    const { control } = this.#client!.peer(prefillEngine)?.addresses ?? {};
    if (control === undefined || node.knows(prefillEngine)) return;
    let reaching = this.#reaching.get(prefillEngine);
    if (reaching === undefined) {
      reaching = node.connect(parseAddress(control)).finally(() => this.#reaching.delete(prefillEngine));
      this.#reaching.set(prefillEngine, reaching);
    }
    await reaching;
  }

  #canarySpaces(window: number): ConstructorParameters<typeof Canaries>[1] {
    const { buffer, layout } = this.traffic;
    const hbm =
      this.engine instanceof PrefillEngine
        ? { space: this.engine.staging, layers: window }
        : { space: this.engine.hbm, layers: layout.layers };
    return [{ space: buffer, layers: layout.layers }, hbm];
  }

  async start(): Promise<void> {
    const { lanes, decodeStepS, freeHits } = this.#job;
    this.#loop =
      this.engine instanceof PrefillEngine
        ? runPrefill(this.engine, this.#gpu, freeHits)
        : runDecode(this.engine, this.#gpu, { lanes, stepS: decodeStepS, freeHits }, this.#decodeHooks());
    this.#loop.catch((error: unknown) => {
      const { code, message } =
        error instanceof DualPathError ? error : new DualPathError('INTERNAL', String(error));
      this.#rpc.emit(this.driver, 'device-failed', { code, message });
    });
    await this.#client?.joined;
  }

  #decodeHooks(): Parameters<typeof runDecode>[3] {
    return {
      reply: (request) => this.#prompts.reply(request),
      ended: (request, { persistError }) => {
        const error = persistError && { code: persistError.code, message: persistError.message };
        this.#rpc.emit(this.driver, 'ended', { request, persistError: error ?? null });
      },
      failed: (_request, error) => {
        const message = error instanceof Error ? error.message : String(error);
        this.#rpc.emit(this.driver, 'device-failed', { code: 'INTERNAL', message });
      },
    };
  }

  peerLost(peer: string): void {
    this.engine.peerLost(peer);
  }

  /** As they are when what the canaries hold now has been looked at. */
  async checkedTotals(): Promise<EngineTotals> {
    await this.#canaries?.check();
    return this.totals();
  }

  totals(): EngineTotals {
    const { engine, links, transport } = this.traffic;
    const statistics = engine.statistics();
    const gpu = this.#gpu.statistics();
    const cpu = process.cpuUsage(this.#cpuBefore);
    const facts = transport.facts();
    return {
      storageReadBytes: links!.storageRead.statistics().bytes,
      storageWriteBytes: links!.storageWrite.statistics().bytes,
      storageReadBusyS: links!.storageRead.statistics().busyNs / 1e9,
      gpu: {
        kernels: gpu.kernels,
        checkedBytes: gpu.checkedBytes,
        mismatchedBytes: gpu.mismatchedBytes,
        overruns: gpu.overruns,
        latenessMeanUs: gpu.kernels === 0 ? 0 : gpu.latenessSumNs / gpu.kernels / 1000,
        latenessMaxUs: gpu.latenessMaxNs / 1000,
      },
      lostBlocks: this.engine instanceof PrefillEngine ? this.engine.hits.lostBlocks : 0,
      failedPrograms: statistics.failedPrograms,
      directIo: statistics.directIo,
      storageIo: statistics.storageIo,
      cpuS: (cpu.user + cpu.system) / 1e6,
      transport: { ...facts, sentBytesTo: [...facts.sentBytesTo] },
      copies: this.traffic.copies.facts(),
      canaries: this.#canaries?.statistics() ?? { checkedBytes: 0, mismatchedBytes: 0 },
    };
  }

  async close(): Promise<void> {
    await this.#canaries?.close();
    await this.engine.close();
    await this.#loop.catch(() => undefined);
    await this.#client?.close();
    this.#gpu.close();
    await this.traffic.close();
  }
}

function blocksOf(what: string, bytes: number, blockBytes: number): number {
  const blocks = Math.floor(bytes / blockBytes);
  if (blocks >= 1) return blocks;
  throw new DualPathError(
    'INVALID_ARGUMENT',
    `${what} of ${bytes} bytes holds no block of ${blockBytes} bytes; give it at least that`,
    { bytes, least_bytes: blockBytes },
  );
}
