/**
 * An engine process's part: an engine with an emulated GPU, run on behalf of a driver (a replay) that has the scheduler and
 * the prompts. One run at a time; it ends when the driver says so or is lost.
 */
import { join } from 'node:path';
import { z } from 'zod';
import { EngineControl, Rpc, type ControlNode } from '../control/index.js';
import { EmulatedGpu } from '../emulation/index.js';
import { DecodeEngine, PrefillEngine } from '../engine/index.js';
import { DualPathError } from '../errors/index.js';
import type { BlockLayout } from '../layout/index.js';
import { slotBytes } from '../memory/index.js';
import { runDecode, runPrefill } from '../replay/index.js';
import { LinearTimeModel } from '../scheduler/index.js';
import { BlockStore } from '../storage/index.js';
import { TrafficManager, type CopyOptions, type OpenTransport } from '../traffic/index.js';
import { Canaries } from './canary.js';
import {
  cancelSchema,
  jobSchema,
  type EngineDescription,
  type EngineJob,
  type EngineTotals,
} from './protocol.js';
import { RemotePrompts, RemoteScheduler } from './remote-scheduler.js';

export interface EngineHostOptions {
  readonly role: 'prefill' | 'decode';
  readonly layout: BlockLayout;
  /** Where the stores are that drivers name. */
  readonly storeFolder: string;
  /** Most memory that a driver may ask for: buffer and HBM together. */
  readonly memoryLimitBytes: number;
  /** Its name is the engine's. */
  readonly node: ControlNode;
  /** Left out: loopback, to the engines of this process, in the network of this name. */
  readonly transport?: OpenTransport;
  readonly copies?: CopyOptions;
  /** What that is; default 'verbs'. */
  readonly transportKind?: 'shared-memory' | 'verbs';
  readonly network?: string;
  /** What the transport is, before there is one. */
  readonly device: string | null;
  readonly note?: (text: string) => void;
}

export class EngineHost {
  readonly #options: EngineHostOptions;
  readonly #rpc: Rpc;
  readonly #control: EngineControl;
  #run: EngineRun | undefined;
  #ending: Promise<void> = Promise.resolve();
  /** Of the runs that are over. */
  readonly #statistics = {
    runs: 0,
    verifiedBytes: 0,
    mismatchedBytes: 0,
    canaryMismatchedBytes: 0,
    sentBytes: 0,
  };

  constructor(options: EngineHostOptions) {
    this.#options = options;
    const { node } = options;
    this.#rpc = new Rpc(node);
    this.#control = new EngineControl(node);
    this.#rpc.serve('describe', z.null(), async () => this.#describe());
    this.#rpc.serve('open', jobSchema, (driver, job) => this.#open(driver, job));
    this.#rpc.serve('totals', z.null(), (driver) => this.#of(driver).checkedTotals());
    this.#rpc.serve('close', z.null(), async (driver) => {
      if (this.#run?.driver === driver) await this.#end('its driver is through with it');
    });
    this.#rpc.on('cancel', cancelSchema, (driver, { request, admission, code, message }) => {
      if (this.#run?.driver !== driver) return;
      this.#run.engine.cancel(request, new DualPathError(code, message), admission);
    });
    node.listen({ lost: (peer, error) => this.#lost(peer, error) });
  }

  get statistics(): Readonly<
    Record<'runs' | 'verifiedBytes' | 'mismatchedBytes' | 'canaryMismatchedBytes' | 'sentBytes', number>
  > {
    return this.#statistics;
  }

  /** The engine of the run under way; none between two. */
  get engines(): readonly (PrefillEngine | DecodeEngine)[] {
    return this.#run === undefined ? [] : [this.#run.engine];
  }

  #describe(): EngineDescription {
    const { node, role, device, transport, transportKind, memoryLimitBytes } = this.#options;
    const kind = transport === undefined ? 'loopback' : (transportKind ?? 'verbs');
    return { name: node.name, role, device, transport: kind, memoryLimitBytes };
  }

  #of(driver: string): EngineRun {
    if (this.#run?.driver === driver) return this.#run;
    throw new DualPathError('CLOSED', `engine '${this.#options.node.name}' is not run by '${driver}'`);
  }

  async #open(driver: string, job: EngineJob): Promise<unknown> {
    await this.#ending;
    const { node, note, memoryLimitBytes } = this.#options;
    if (this.#run !== undefined) {
      throw new DualPathError(
        'CAPACITY_EXHAUSTED',
        `engine '${node.name}' is run by '${this.#run.driver}'; wait for its end, or name another engine`,
      );
    }
    if (job.bufferBytes + job.hbmBytes > memoryLimitBytes) {
      throw new DualPathError(
        'REQUEST_TOO_LARGE',
        `${job.bufferBytes} bytes of buffer and ${job.hbmBytes} of HBM are asked of engine '${node.name}', its limit is ` +
          `${memoryLimitBytes}; ask for less, or start it with a larger --memory-limit`,
        { bytes: job.bufferBytes + job.hbmBytes, limit_bytes: memoryLimitBytes },
      );
    }
    const run = new EngineRun(this.#options, this.#rpc, this.#control, driver, job);
    this.#run = run;
    note?.(`run by ${driver}: ${job.store}`);
    try {
      await Promise.all(
        job.peers
          .filter(({ name }) => node.name < name && !node.knows(name))
          .map(({ address }) => node.connect(address)),
      );
      await run.start();
    } catch (error) {
      await this.#end('it could not be opened');
      throw error;
    }
    return run.sizes;
  }

  #lost(peer: string, error: DualPathError): void {
    if (this.#run?.driver === peer) void this.#end(error.message);
    else this.#run?.peerLost(peer);
  }

  async #end(why: string): Promise<void> {
    const run = this.#run;
    if (run !== undefined) {
      this.#run = undefined;
      this.#options.note?.(`the run of ${run.driver} ends: ${why}`);
      const { gpu, canaries, transport } = run.totals();
      const counts = this.#statistics;
      counts.runs++;
      counts.verifiedBytes += gpu.checkedBytes;
      counts.mismatchedBytes += gpu.mismatchedBytes + canaries.mismatchedBytes;
      counts.canaryMismatchedBytes += canaries.mismatchedBytes;
      counts.sentBytes += transport.sentBytes;
      this.#ending = run.close();
    }
    await this.#ending;
  }

  /** What it has in flight ends. Idempotent. */
  async close(): Promise<void> {
    await this.#end('the process is asked to end');
  }
}

let runs = 0;

/** One run: an engine from its opening to its end. */
class EngineRun {
  readonly driver: string;
  readonly sizes: { readonly bufferBlocks: number; readonly hbmBlocks: number };
  readonly traffic: TrafficManager;
  readonly engine: PrefillEngine | DecodeEngine;
  readonly #rpc: Rpc;
  readonly #job: EngineJob;
  readonly #gpu: EmulatedGpu;
  readonly #prompts: RemotePrompts;
  readonly #canaries: Canaries | undefined;
  readonly #cpuBefore = process.cpuUsage();
  #loop: Promise<void> = Promise.resolve();

  constructor(
    { role, layout, storeFolder, node, transport, transportKind, copies, network }: EngineHostOptions,
    rpc: Rpc,
    control: EngineControl,
    driver: string,
    job: EngineJob,
  ) {
    this.driver = driver;
    this.#rpc = rpc;
    this.#job = job;
    const { name } = node;
    const store = BlockStore.open({ path: join(storeFolder, job.store), layout });
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
    const scheduler = new RemoteScheduler(rpc, driver);
    this.#prompts = new RemotePrompts(rpc, driver);
    const common = {
      traffic,
      scheduler,
      group: name,
      control,
      prompts: this.#prompts,
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
