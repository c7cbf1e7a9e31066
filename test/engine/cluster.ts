import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, vi } from 'vitest';
import { LocalControl, type ControlMessage } from '../../src/control/index.js';
import { EmulatedGpu } from '../../src/emulation/index.js';
import { DecodeEngine, PrefillEngine } from '../../src/engine/index.js';
import type { DecodeSequence, EngineOptions, PrefillBatch, SequenceResult } from '../../src/engine/index.js';
import { DualPathError } from '../../src/errors/index.js';
import { blockLayout, loadModel, type BlockLayout, type ModelDescription } from '../../src/layout/index.js';
import { verifyStore } from '../../src/replay/index.js';
import { LinearTimeModel, LocalScheduler } from '../../src/scheduler/index.js';
import type { EngineCapacity, ReadPolicy, SchedulerClient } from '../../src/scheduler/index.js';
import { BlockStore } from '../../src/storage/index.js';
import { TrafficManager, type CallOptions } from '../../src/traffic/index.js';
import { Runtime } from '../../src/transfer/index.js';
import { decodeSequence, onDevice, type Compute } from './devices.js';
import { freeOf, type Free } from './free.js';

export interface ClusterOptions {
  readonly model?: string | ModelDescription;
  readonly blockTokens?: number;
  readonly prefill?: number;
  readonly decode?: number;
  readonly policy?: ReadPolicy;
  readonly layerwise?: boolean;
  readonly freeHits?: boolean;
  readonly windowLayers?: number;
  readonly maxBatches?: number;
  readonly maxRequestsPerBatch?: number;
  readonly stagingBlocks?: number;
  /** One attention second a new token: the quota is a number of tokens. */
  readonly quotaS?: number;
  readonly bufferBlocks?: number;
  /** Of the prefill engines; default: bufferBlocks. */
  readonly prefillBufferBlocks?: number;
  readonly hbmBlocks?: number;
  /** A store of its own, for a test that harms it. */
  readonly ownStore?: boolean;
  readonly compute?: Compute;
  /** Prefill engines' batches are not taken before. */
  readonly beforeLoop?: Promise<void>;
  /** The scheduler as engines of a role see it. */
  readonly schedulerFor?: (role: 'prefill' | 'decode', scheduler: LocalScheduler) => SchedulerClient;
  /** Rate of the decode engines' storage link; default: not limited. */
  readonly writeBytesPerS?: number;
  /** Awaited before a batch is computed. */
  readonly beforeBatch?: (batch: PrefillBatch) => Promise<void>;
  /** Awaited before a sequence decodes. */
  readonly beforeDecode?: (sequence: DecodeSequence) => Promise<void>;
  readonly prompt?: (request: string, tokens: Uint32Array) => Uint32Array | Promise<Uint32Array>;
  readonly limits?: (request: string) => CallOptions;
}

/** The decode side reads all hits: they do not fit the PE buffer. */
export const decodeReads: ClusterOptions = { policy: 'shorter-queue', prefillBufferBlocks: 1 };

export type TurnResult = SequenceResult & { readonly foundBlocks: number };

interface Turn {
  readonly prompt: Uint32Array;
  readonly reply: Uint32Array;
  resolve(result: SequenceResult): void;
  reject(error: unknown): void;
}

/** An end of the cluster's that a test may reach for: an engine, its GPU. */
export interface Node<Engine> {
  readonly engine: Engine;
  readonly gpu: EmulatedGpu;
  readonly free: Free;
}

let clusters = 0;

/** Stores of this test file, one a layout: making one takes long. Sessions have tokens of their own. */
const stores = new Map<string, BlockStore>();
const directories: string[] = [];

function openStore(layout: BlockLayout): BlockStore {
  const directory = mkdtempSync(join(tmpdir(), 'dualpath-engine-'));
  directories.push(directory);
  return BlockStore.open({ path: join(directory, 'store'), layout });
}

function sharedStore(layout: BlockLayout): BlockStore {
  const store = stores.get(layout.identity) ?? openStore(layout);
  stores.set(layout.identity, store);
  return store;
}

afterAll(() => {
  for (const directory of directories) rmSync(directory, { recursive: true, force: true });
});

/** Loses what engines say that are dead. */
class TestControl extends LocalControl {
  readonly #silent = new Set<string>();

  silence(engine: string): void {
    this.#silent.add(engine);
  }

  override send(to: string, from: string, message: ControlMessage): void {
    if (!this.#silent.has(from) && !this.#silent.has(to)) super.send(to, from, message);
  }
}

/** P prefill and D decode engines of one process, driven by emulated GPUs that check every byte. */
export class TestCluster {
  readonly layout: BlockLayout;
  readonly store: BlockStore;
  readonly control = new TestControl();
  readonly scheduler: LocalScheduler;
  readonly runtimes = { prefill: new Runtime(), decode: new Runtime() };
  readonly prefill: Node<PrefillEngine>[] = [];
  readonly decode: Node<DecodeEngine>[] = [];
  readonly front: TrafficManager;
  /** What the devices threw, the ends of batches and engines included. */
  readonly deviceErrors: unknown[] = [];
  batches = 0;
  readonly #options: ClusterOptions;
  readonly #id = ++clusters;
  readonly #turns = new Map<string, Turn>();
  readonly #loops: Promise<void>[] = [];

  constructor(options: ClusterOptions = {}) {
    this.#options = options;
    const { model = 'demo', blockTokens = 16 } = options;
    this.layout = blockLayout(typeof model === 'string' ? loadModel(model) : model, { blockTokens });
    this.store = (options.ownStore === true ? openStore : sharedStore)(this.layout);
    this.front = this.#traffic('front', 'prefill', 1);
    const prefills = this.#names('prefill', options.prefill ?? 1);
    const decodes = this.#names('decode', options.decode ?? 1);
    this.scheduler = new LocalScheduler(
      {
        engines: [
          ...prefills.map((name) => this.#capacity(name, 'prefill')),
          ...decodes.map((name) => this.#capacity(name, 'decode')),
        ],
        policy: options.policy ?? 'shorter-queue',
        blockTokens,
        blockBytes: this.store.file.fileBytes,
        decodeSpareBlocks: 1,
        maxWaiting: 1000,
        seed: 1,
      },
      ({ request, error, assignment }) => {
        const cause = error instanceof DualPathError ? error : new DualPathError('INTERNAL', error.message);
        for (const { engine } of [...this.prefill, ...this.decode]) {
          if (engine.name !== assignment?.prefillEngine && engine.name !== assignment?.decodeEngine) continue;
          engine.cancel(request, cause, assignment.admission);
        }
        this.#turns.get(request)?.reject(error);
      },
    );
    for (const name of prefills) this.#openPrefill(name);
    for (const name of decodes) this.#openDecode(name);
  }

  #names(role: string, count: number): string[] {
    return Array.from({ length: count }, (_, index) => `${role}-${index}/${this.#id}`);
  }

  #capacity(engine: string, role: 'prefill' | 'decode'): EngineCapacity {
    const { bufferBlocks = 64, prefillBufferBlocks = bufferBlocks, hbmBlocks = 64 } = this.#options;
    return {
      engine,
      node: engine,
      group: engine,
      role,
      bufferBlocks: role === 'prefill' ? prefillBufferBlocks : bufferBlocks,
      hbmBlocks: role === 'prefill' ? 0 : hbmBlocks,
      readRateBytesPerS: 1e9,
    };
  }

  #traffic(name: string, role: 'prefill' | 'decode', bufferBlocks: number): TrafficManager {
    const runtime = this.runtimes[role];
    const { writeBytesPerS } = this.#options;
    const links = {
      storage: { name: `${name}/storage`, readBytesPerS: 0, writeBytesPerS: writeBytesPerS ?? 0 },
      compute: { name: `${name}/compute`, bytesPerS: 0 },
    };
    return new TrafficManager({
      ...(writeBytesPerS === undefined || role === 'prefill' ? {} : { links }),
      name: name === 'front' ? `front/${this.#id}` : name,
      layout: this.layout,
      store: this.store,
      bufferBlocks,
      runtime,
      maxTokens: 1 << 14,
    });
  }

  #common(traffic: TrafficManager, role: 'prefill' | 'decode'): EngineOptions {
    const turn = (request: string): Turn => {
      const found = this.#turns.get(request);
      if (found === undefined) throw new Error(`request '${request}' is over`);
      return found;
    };
    const { prompt = (_, tokens) => tokens, schedulerFor = (_, scheduler) => scheduler } = this.#options;
    return {
      traffic,
      scheduler: schedulerFor(role, this.scheduler),
      group: traffic.name,
      control: this.control,
      prompts: {
        prompt: (request) => prompt(request, turn(request).prompt),
        maxNewTokens: (request) => turn(request).reply.length,
        ...(this.#options.limits === undefined ? {} : { limits: this.#options.limits }),
      },
    };
  }

  #openPrefill(name: string): void {
    const { bufferBlocks = 64, prefillBufferBlocks = bufferBlocks } = this.#options;
    const { stagingBlocks = 64, freeHits = false, quotaS = 1e9 } = this.#options;
    const { windowLayers, layerwise, maxBatches, maxRequestsPerBatch } = this.#options;
    const traffic = this.#traffic(name, 'prefill', prefillBufferBlocks);
    const engine = new PrefillEngine({
      ...this.#common(traffic, 'prefill'),
      stagingBlocks,
      quotaS,
      freeHits,
      ...(windowLayers === undefined ? {} : { windowLayers }),
      ...(layerwise === undefined ? {} : { layerwise }),
      ...(maxBatches === undefined ? {} : { maxBatches }),
      ...(maxRequestsPerBatch === undefined ? {} : { maxRequestsPerBatch }),
      timeModel: new LinearTimeModel({
        baseS: 0,
        perNewTokenS: 0,
        perAttentionTokenS: 1,
        perAttentionPairS: 0,
      }),
    });
    const gpu = new EmulatedGpu(traffic.engine);
    this.prefill.push({ engine, gpu, free: freeOf(traffic, engine.staging) });
    this.#loops.push(this.#prefillLoop(engine, gpu));
  }

  #openDecode(name: string): void {
    const { bufferBlocks = 64, hbmBlocks = 64, freeHits = false } = this.#options;
    const traffic = this.#traffic(name, 'decode', bufferBlocks);
    const engine = new DecodeEngine({ ...this.#common(traffic, 'decode'), hbmBlocks, freeHits });
    const gpu = new EmulatedGpu(traffic.engine);
    this.decode.push({ engine, gpu, free: freeOf(traffic, engine.hbm) });
    this.#loops.push(this.#decodeLoop(engine, gpu));
  }

  async #prefillLoop(engine: PrefillEngine, gpu: EmulatedGpu): Promise<void> {
    const { freeHits = false, beforeLoop, beforeBatch, compute = onDevice(freeHits) } = this.#options;
    await beforeLoop;
    for await (const one of engine.batches()) {
      this.batches++;
      const before = beforeBatch?.(one);
      if (before !== undefined) one.holdUntil(before);
      const work = (async () => {
        await before;
        if (!one.givenUp) await compute(engine, gpu, one);
      })();
      work.catch((error: unknown) => this.deviceErrors.push(error));
    }
  }

  async #decodeLoop(engine: DecodeEngine, gpu: EmulatedGpu): Promise<void> {
    const { freeHits = false, beforeDecode } = this.#options;
    const run = async (sequence: DecodeSequence): Promise<void> => {
      const turn = this.#turns.get(sequence.request);
      try {
        await beforeDecode?.(sequence);
        await decodeSequence(engine, gpu, sequence, turn!.reply, freeHits);
      } finally {
        const result = await sequence.finish();
        if (!sequence.signal.aborted) turn?.resolve(result);
      }
    };
    for await (const sequence of engine.sequences()) {
      run(sequence).catch((error: unknown) => this.deviceErrors.push(error));
    }
  }

  /** Looks the prompt up, as a front end does, and runs the turn to its end. */
  async turn(request: string, prompt: Uint32Array, reply = new Uint32Array()): Promise<TurnResult> {
    const chain = await this.front.lookup(prompt);
    const { hitTokens } = chain;
    chain.release();
    return {
      foundBlocks: hitTokens / this.layout.blockTokens,
      ...(await this.submit(request, prompt, reply, hitTokens)),
    };
  }

  /** Rejects with the error that the scheduler was told. */
  async submit(
    request: string,
    prompt: Uint32Array,
    reply: Uint32Array,
    hitTokens: number,
  ): Promise<SequenceResult> {
    let turn: Turn | undefined;
    const ended = new Promise<SequenceResult>((resolve, reject) => {
      turn = { prompt, reply, resolve, reject };
    });
    ended.catch(() => undefined);
    this.#turns.set(request, turn!);
    try {
      const maxNewTokens = reply.length;
      await this.scheduler.submit({ request, promptTokens: prompt.length, hitTokens, maxNewTokens });
      return await ended;
    } finally {
      this.#turns.delete(request);
    }
  }

  /** Every byte that devices saw was right, and every byte that the conversations left in the store is. */
  async expectRightBytes(...conversations: readonly Uint32Array[]): Promise<void> {
    for (const { gpu } of [...this.prefill, ...this.decode]) {
      const { mismatchedBytes } = gpu.statistics();
      expect(mismatchedBytes).toBe(0);
    }
    const stored = await verifyStore(this.store, conversations);
    expect(stored.mismatchedBytes).toBe(0);
    expect(stored.checkedBytes).toBe(stored.blocks * this.layout.fullBlockBytes);
  }

  checkedBytes(side: 'prefill' | 'decode'): number {
    return this[side].reduce((sum, { gpu }) => sum + gpu.statistics().checkedBytes, 0);
  }

  /** Everything that requests held is back, on the engines (of one role) and in the scheduler's account. */
  async expectNothingHeld(role?: 'prefill' | 'decode'): Promise<void> {
    const prefill = role === 'decode' ? [] : this.prefill;
    const decode = role === 'prefill' ? [] : this.decode;
    await vi.waitFor(
      () => {
        for (const { engine, free } of prefill)
          expect(freeOf(engine.traffic, engine.staging), engine.name).toEqual(free);
        for (const { engine, free } of decode)
          expect(freeOf(engine.traffic, engine.hbm), engine.name).toEqual(free);
      },
      { timeout: 5000, interval: 5 },
    );
    expect(this.scheduler.statistics()).toMatchObject({ running: 0, waiting: 0 });
  }

  async close(): Promise<void> {
    this.scheduler.close();
    await Promise.all([...this.prefill, ...this.decode].map(({ engine }) => engine.close()));
    for (const { gpu } of [...this.prefill, ...this.decode]) gpu.close();
    await this.front.close();
    await Promise.all(this.#loops);
    for (const runtime of Object.values(this.runtimes)) runtime.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/** Holds whoever waits for it until it is opened. */
export class Gate {
  open!: () => void;
  readonly opened = new Promise<void>((resolve) => {
    this.open = resolve;
  });
}

let nextToken = 0;

/** Tokens that no other call gives. */
export function tokens(count: number): Uint32Array<ArrayBuffer> {
  const first = nextToken;
  nextToken += count;
  return Uint32Array.from({ length: count }, (_, index) => first + index);
}

export function joined(...parts: readonly Uint32Array[]): Uint32Array<ArrayBuffer> {
  return Uint32Array.from(parts.flatMap((part) => [...part]));
}
