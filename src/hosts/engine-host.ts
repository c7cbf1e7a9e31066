/**
 * An engine process's part: an engine with an emulated GPU, run on behalf of a driver (a replay) that has the scheduler and
 * the prompts. One run at a time; it ends when the driver says so or is lost.
 */
import { join } from 'node:path';
import { z } from 'zod';
import { EngineControl, Rpc, type ControlNode } from '../control/index.js';
import type { DecodeEngine, PrefillEngine } from '../engine/index.js';
import { DualPathError } from '../errors/index.js';
import type { BlockLayout } from '../layout/index.js';
import type { Log } from '../log/index.js';
import { BlockStore } from '../storage/index.js';
import type { CopyOptions, OpenTransport } from '../traffic/index.js';
import { EngineRun } from './engine-run.js';
import { cancelSchema, jobSchema, type EngineDescription, type EngineJob } from './protocol.js';

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
  /** For schedulers that a driver names. */
  readonly token?: Uint8Array;
  /** What the transport is, before there is one. */
  readonly device: string | null;
  readonly note?: (text: string) => void;
  /** Of the requests that it is given. */
  readonly log?: Log;
}

export class EngineHost {
  readonly #options: EngineHostOptions;
  readonly #rpc: Rpc;
  readonly #control: EngineControl;
  #run: EngineRun | undefined;
  /** Whose run is being opened: an object of its own each time. */
  #beginning: { readonly driver: string } | undefined;
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
    const taken = (this.#run ?? this.#beginning)?.driver;
    if (taken !== undefined) {
      throw new DualPathError(
        'CAPACITY_EXHAUSTED',
        `engine '${node.name}' is run by '${taken}'; wait for its end, or name another engine`,
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
    const run = await this.#begin(driver, job);
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

  /** Other words are heard while a slow file system opens the store. */
  async #begin(driver: string, job: EngineJob): Promise<EngineRun> {
    const { storeFolder, layout } = this.#options;
    const own = { driver };
    this.#beginning = own;
    try {
      const store = await BlockStore.openAsync({ path: join(storeFolder, job.store), layout });
      // The driver was lost meanwhile, and may have come again, or this process ends.
      if (this.#beginning !== own) {
        throw new DualPathError('CLOSED', `the run of '${driver}' was over before its store was open`);
      }
      const place = { rpc: this.#rpc, control: this.#control, driver, job, store };
      return (this.#run = new EngineRun(this.#options, place));
    } finally {
      if (this.#beginning === own) this.#beginning = undefined;
    }
  }

  #lost(peer: string, error: DualPathError): void {
    if (this.#beginning?.driver === peer) this.#beginning = undefined;

    if (this.#run?.driver === peer) {
      void this.#end(error.message);
      return;
    }
    if (this.#run !== undefined) this.#options.note?.(`lost: ${error.message}`);
    this.#run?.peerLost(peer);
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
    this.#beginning = undefined;
    await this.#end('the process is asked to end');
  }
}
