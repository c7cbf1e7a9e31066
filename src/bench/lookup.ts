/**
 * How long a look-up of the longest stored prefix takes: as its caller awaits it, on the JavaScript thread, and in
 * its parts. Its store is a directory of its own with a small file for every block.
 */
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { isMainThread } from 'node:worker_threads';
import { blockLayout, parseModel } from '../layout/index.js';
import { sequenceGeometry } from '../memory/index.js';
import { BlockStore } from '../storage/index.js';
import { TrafficManager } from '../traffic/index.js';
import { Runtime } from '../transfer/index.js';
import { quantile } from './quantile.js';

export interface LookupOptions {
  readonly signal?: AbortSignal;
  readonly onProgress?: (step: string) => void;
  /** Blocks of 64 tokens of the prompts; default 512 and 2,048. */
  readonly blocks?: readonly number[];
  /** Look-ups of each case; default 1,000, of cold ones at most 50. */
  readonly samples?: number;
  /** Where the store's directory is made; default the system's folder for temporary files. */
  readonly directory?: string;
}

export interface Percentiles {
  readonly p50: number;
  readonly p99: number;
}

/**
 * cold: first look-up of a store just opened, all stored. warm: looked up before, all stored. branch: the first half
 * as warm, then tokens never seen. miss: tokens never seen. The cases `again` are of tokens seen once.
 */
export type LookupCase = 'cold' | 'warm' | 'branch' | 'branch again' | 'miss' | 'miss again';

export interface LookupResult {
  readonly case: LookupCase;
  readonly blocks: number;
  readonly blockTokens: number;
  /** What holds the tokens: an ArrayBuffer is copied on its way, a SharedArrayBuffer read as it lies. */
  readonly tokensIn: 'ArrayBuffer' | 'SharedArrayBuffer';
  readonly storedBlocks: number;
  readonly samples: number;
  /** From the call until its caller goes on. */
  readonly totalUs: Percentiles;
  /** Of that, the JavaScript thread was not idle (event loop's own measure): call, callback, continuation. */
  readonly javascriptUs: Percentiles;
  /**
   * CPU time of the JavaScript thread for a look-up and its turn of the event loop, mean over look-ups that nothing
   * else was measured of; null for cases of unseen tokens and outside a process's main thread.
   */
  readonly javascriptCpuUs: number | null;
  /** Means of the pool's thread: tokens copied, compared with known chains, hashed, keys looked up in the index. */
  readonly copyUs: number;
  readonly compareUs: number;
  readonly hashUs: number;
  readonly indexUs: number;
}

const blockTokens = 64;
const model = JSON.stringify({
  name: 'bench',
  revision: '1',
  dtype: 'u8',
  layers: 1,
  groups: [
    { name: 'kv', layers: 'all', planes: [{ name: 'kv', bytes_per_token: 8 }], sharding: 'replicated' },
  ],
});
const layout = blockLayout(parseModel(model, 'bench'), { blockTokens });

export async function benchLookup(options: LookupOptions = {}): Promise<LookupResult[]> {
  const path = mkdtempSync(join(options.directory ?? tmpdir(), 'dualpath-lookup-'));
  const runtime = new Runtime();
  try {
    const results: LookupResult[] = [];
    for (const blocks of options.blocks ?? [512, 2048]) {
      results.push(...(await new LookupBench(path, runtime, blocks, options).run()));
    }
    return results;
  } finally {
    runtime.close();
    rmSync(path, { recursive: true, force: true });
  }
}

class LookupBench {
  readonly #path: string;
  readonly #runtime: Runtime;
  readonly #blocks: number;
  readonly #options: LookupOptions;
  /** The stored prompt, and one token more, so that every block counts. */
  readonly #stored: Uint32Array;
  #opened = 0;

  constructor(path: string, runtime: Runtime, blocks: number, options: LookupOptions) {
    this.#path = join(path, `store-${blocks}`);
    this.#runtime = runtime;
    this.#blocks = blocks;
    this.#options = options;
    this.#stored = this.#unseen();
  }

  async run(): Promise<LookupResult[]> {
    await this.#store();
    const samples = this.#options.samples ?? 1000;
    const shared = new Uint32Array(new SharedArrayBuffer(this.#stored.byteLength));
    shared.set(this.#stored);
    // First without being measured, until the code is compiled as in an engine that has run for a while.
    await this.#warm('warm', Math.min(samples, 500), () => this.#stored);
    return [
      await this.#cold(Math.min(samples, 50)),
      await this.#warm('warm', samples, () => this.#stored),
      await this.#warm('warm', samples, () => shared),
      await this.#warm('branch', Math.ceil(samples / 4), () => this.#branch()),
      await this.#warm('branch again', samples, constant(this.#branch())),
      await this.#warm('miss', Math.ceil(samples / 4), () => this.#unseen()),
      await this.#warm('miss again', samples, constant(this.#unseen())),
    ];
  }

  #unseen(): Uint32Array {
    const bytes = randomBytes((this.#blocks * blockTokens + 1) * 4);
    return new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4).slice();
  }

  #branch(): Uint32Array {
    const tokens = this.#unseen();
    tokens.set(this.#stored.subarray(0, (this.#blocks / 2) * blockTokens));
    return tokens;
  }

  #open(): TrafficManager {
    const store = BlockStore.open({ path: this.#path, layout });
    return new TrafficManager({
      name: `bench-lookup-${process.pid}-${this.#blocks}-${this.#opened++}`,
      layout,
      store,
      bufferBlocks: 64,
      runtime: this.#runtime,
    });
  }

  async #store(): Promise<void> {
    this.#options.onProgress?.(`${this.#blocks} blocks: storing`);
    await using manager = this.#open();
    const slots = 64;
    const geometry = manager.adopt(sequenceGeometry(layout, slots, `${manager.name}/memory`));
    const chain = await manager.hash(this.#stored);
    for (let firstBlock = 0; firstBlock < this.#blocks; firstBlock += slots) {
      this.#options.signal?.throwIfAborted();
      const blocks = Math.min(slots, this.#blocks - firstBlock);
      const blockTable = Array.from({ length: blocks }, (_, i) => i);
      await manager.save({ chain, firstBlock, blocks, geometry, blockTable }).done;
    }
    chain.release();
  }

  async #cold(samples: number): Promise<LookupResult> {
    const probe = new Probe('cold', this.#blocks);
    this.#progress('cold');
    for (let i = 0; i < samples; i++) {
      await using manager = this.#open();
      await probe.lookUp(manager, this.#stored);
    }
    return probe.result();
  }

  async #warm(name: LookupCase, samples: number, next: () => Uint32Array): Promise<LookupResult> {
    const probe = new Probe(name, this.#blocks);
    this.#progress(name);
    await using manager = this.#open();
    (await manager.lookup(this.#stored)).release();
    if (name.endsWith('again')) (await manager.lookup(next())).release();
    for (let i = 0; i < samples; i++) {
      this.#options.signal?.throwIfAborted();
      await probe.lookUp(manager, next());
    }
    if (next() === next()) await probe.measureCpu(manager, next(), samples);
    return probe.result();
  }

  #progress(name: LookupCase): void {
    this.#options.signal?.throwIfAborted();
    this.#options.onProgress?.(`${this.#blocks} blocks: ${name}`);
  }
}

/** Collects the samples of one case. */
class Probe {
  readonly #case: LookupCase;
  readonly #blocks: number;
  readonly #totalUs: number[] = [];
  readonly #javascriptUs: number[] = [];
  readonly #partsNs = { copy: 0, compare: 0, hash: 0, index: 0 };
  #cpuUs: number | null = null;
  #storedBlocks = 0;
  #tokensIn: LookupResult['tokensIn'] = 'ArrayBuffer';

  constructor(name: LookupCase, blocks: number) {
    this.#case = name;
    this.#blocks = blocks;
  }

  async lookUp(manager: TrafficManager, tokens: Uint32Array): Promise<void> {
    const before = manager.engine.statistics();
    await new Promise((resolve) => setImmediate(resolve)); // from the event loop, as a request comes
    const { idle } = performance.eventLoopUtilization();
    const start = performance.now();
    const chain = await manager.lookup(tokens);
    const totalUs = (performance.now() - start) * 1000;
    const idleUs = (performance.eventLoopUtilization().idle - idle) * 1000;
    this.#totalUs.push(totalUs);
    this.#javascriptUs.push(totalUs - idleUs);
    this.#storedBlocks = chain.hitBlocks;
    this.#tokensIn = tokens.buffer instanceof SharedArrayBuffer ? 'SharedArrayBuffer' : 'ArrayBuffer';
    chain.release();
    const after = manager.engine.statistics();
    this.#partsNs.copy += after.lookupCopyNs - before.lookupCopyNs;
    this.#partsNs.compare += after.lookupCompareNs - before.lookupCompareNs;
    this.#partsNs.hash += after.lookupHashNs - before.lookupHashNs;
    this.#partsNs.index += after.lookupIndexNs - before.lookupIndexNs;
  }

  async measureCpu(manager: TrafficManager, tokens: Uint32Array, lookUps: number): Promise<void> {
    const before = threadCpuUs();
    for (let i = 0; i < lookUps; i++) {
      await new Promise((resolve) => setImmediate(resolve));
      (await manager.lookup(tokens)).release();
    }
    const after = threadCpuUs();
    this.#cpuUs = before === null || after === null ? null : (after - before) / lookUps;
  }

  result(): LookupResult {
    const samples = this.#totalUs.length;
    const mean = (partNs: number): number => partNs / samples / 1000;
    const percentiles = (us: readonly number[]): Percentiles => ({
      p50: quantile(us, 0.5),
      p99: quantile(us, 0.99),
    });
    return {
      case: this.#case,
      blocks: this.#blocks,
      blockTokens,
      tokensIn: this.#tokensIn,
      storedBlocks: this.#storedBlocks,
      samples,
      totalUs: percentiles(this.#totalUs),
      javascriptUs: percentiles(this.#javascriptUs),
      javascriptCpuUs: this.#cpuUs,
      copyUs: mean(this.#partsNs.copy),
      compareUs: mean(this.#partsNs.compare),
      hashUs: mean(this.#partsNs.hash),
      indexUs: mean(this.#partsNs.index),
    };
  }
}

const constant =
  <T>(value: T): (() => T) =>
  () =>
    value;

/** Time on a CPU of this process's main thread (proc(5), schedstat). */
function threadCpuUs(): number | null {
  if (!isMainThread) return null;
  const [onCpuNs] = readFileSync(`/proc/self/task/${process.pid}/schedstat`, 'utf8').split(' ');
  return Number(onCpuNs) / 1000;
}
