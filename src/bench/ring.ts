/**
 * What the door costs: descriptors through the ring and back, queueing a whole layer program, layer times while
 * the event loop is blocked, and the JavaScript heap over millions of blocks. Nothing here touches a disk.
 */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { EmulatedGpu } from '../emulation/index.js';
import { BatchCounters, bufferToStaging, stagingToDecodeBuffer } from '../flow/index.js';
import { blockLayout, parseModel } from '../layout/index.js';
import { BlockSpace, sequenceGeometry, stagingGeometry } from '../memory/index.js';
import { TransferEngine, type Descriptor } from '../transfer/index.js';
import { quantile } from './quantile.js';

export interface RingOptions {
  readonly signal?: AbortSignal;
  readonly onProgress?: (step: string) => void;
  /** Seconds of each throughput sample; default 1. */
  readonly sampleS?: number;
  /** Blocks for the heap measurement; default 10,000,000. */
  readonly heapBlocks?: number;
}

export interface RingResult {
  /** No-op descriptors, in programs of `descriptorsPerProgram`: written, executed, answered. Median of samples. */
  readonly descriptorsPerS: number;
  readonly descriptorsPerProgram: number;
  readonly descriptorSamplesPerS: readonly number[];
  /** Programs of one no-op each, a promise each. */
  readonly programsPerS: number;
  /**
   * JavaScript time to take slots and counters and to queue a 61-layer program over 512 blocks, waking the reactor
   * included: each after the one before has moved its bytes, and so with cold caches and an idle reactor.
   */
  readonly programSubmitUs: { readonly p50: number; readonly p99: number };
  /** The same for programs without bytes, back to back. */
  readonly programSubmitWarmUs: { readonly p50: number; readonly p99: number };
  readonly programLayers: number;
  readonly programBlocks: number;
  readonly programBytesMoved: number;
  /** Distance of each layer from its due time, with the event loop free and blocked for 200 ms. */
  readonly layerLatenessUs: { readonly free: Lateness; readonly blocked: Lateness };
  readonly layerStepUs: number;
  readonly heapBlocks: number;
  readonly heapGrowthBytes: number;
  readonly transport: 'loopback';
  readonly device: 'emulated-hbm';
}

export interface Lateness {
  readonly p50: number;
  readonly p90: number;
  readonly max: number;
}

const layers = 61;
const blocks = 512;
const layout = blockLayout(
  parseModel(
    JSON.stringify({
      name: 'bench',
      revision: '1',
      dtype: 'u8',
      layers,
      groups: [
        { name: 'kv', layers: 'all', planes: [{ name: 'kv', bytes_per_token: 8 }], sharding: 'replicated' },
      ],
    }),
    'bench',
  ),
  { blockTokens: 64 },
);

export async function benchRing(options: RingOptions = {}): Promise<RingResult> {
  const progress = options.onProgress ?? (() => undefined);
  const check = (step: string): void => {
    options.signal?.throwIfAborted();
    progress(step);
  };
  check('no-op descriptors');
  const descriptorsPerProgram = 64;
  const descriptorSamplesPerS: number[] = [];
  for (let i = 0; i < 5; i++) {
    options.signal?.throwIfAborted();
    descriptorSamplesPerS.push(await noOps(descriptorsPerProgram, options.sampleS ?? 1));
  }
  check('one-descriptor programs');
  const programsPerS = await noOps(1, options.sampleS ?? 1);
  check('queueing layer programs');
  const submit = await layerPrograms();
  check('layers while the event loop is blocked');
  const layerStepUs = 2000;
  const free = await layerLateness(layerStepUs, 0);
  const blocked = await layerLateness(layerStepUs, 200);
  check('heap');
  const heapBlocks = options.heapBlocks ?? 10_000_000;
  const heapGrowthBytes = await heapGrowth(heapBlocks, options.signal);
  return {
    descriptorsPerS: quantile(descriptorSamplesPerS, 0.5),
    descriptorsPerProgram,
    descriptorSamplesPerS,
    programsPerS,
    programSubmitUs: { p50: quantile(submit.us, 0.5), p99: quantile(submit.us, 0.99) },
    programSubmitWarmUs: { p50: quantile(submit.warmUs, 0.5), p99: quantile(submit.warmUs, 0.99) },
    programLayers: layers,
    programBlocks: blocks,
    programBytesMoved: submit.bytesMoved,
    layerLatenessUs: { free, blocked },
    layerStepUs,
    heapBlocks,
    heapGrowthBytes,
    transport: 'loopback',
    device: 'emulated-hbm',
  };
}

async function noOps(perProgram: number, seconds: number): Promise<number> {
  await using engine = new TransferEngine({
    name: 'bench-ring',
    submissionEntries: 8192,
    completionEntries: 8192,
    maxPrograms: 4096,
  });
  const descriptors: Descriptor[] = Array.from({ length: perProgram }, () => ({ op: 'nop' }));
  const started = performance.now();
  let done = 0;
  while (performance.now() - started < seconds * 1000) {
    const programs: Promise<unknown>[] = [];
    const most = Math.floor(4096 / perProgram);
    while (programs.length < most && engine.room.descriptors >= perProgram && engine.room.programs > 0) {
      programs.push(engine.submit(descriptors).done);
    }
    await Promise.all(programs);
    done += programs.length * perProgram;
  }
  return done / ((performance.now() - started) / 1000);
}

/** The PE read path's layer program between two engines, queued and run to its end. */
async function layerPrograms(): Promise<{ us: number[]; warmUs: number[]; bytesMoved: number }> {
  await using prefill = new TransferEngine({ name: 'bench-prefill' });
  await using decode = new TransferEngine({ name: 'bench-decode' });
  const buffer = new BlockSpace(prefill, sequenceGeometry(layout, blocks, 'bench/buffer'));
  const staging = new BlockSpace(prefill, stagingGeometry(layout, blocks, layers, 'bench/staging'));
  const target = new BlockSpace(decode, sequenceGeometry(layout, blocks, 'bench/decode-buffer'));
  const peer = prefill.connect('bench-decode');
  const decodeSlots = (await target.take(blocks)).offset;
  const remote = decode.slots(decodeSlots, blocks);
  const us: number[] = [];
  const warmUs: number[] = [];
  let bytesMoved = 0;
  // First without bytes, until the code is compiled as in an engine that has run for a while.
  for (let i = -2000; i < 200; i++) {
    const start = performance.now();
    const from = buffer.tryTake(blocks)!;
    const staged = staging.tryTake(blocks)!;
    const list = prefill.slotTable.take(blocks);
    prefill.setSlots(list, remote);
    const counters = new BatchCounters(prefill, layers, layers, true);
    counters.piecesIn = 1;
    counters.piecesOut = 1;
    const sent = prefill.takeCounters(1);
    const tokenEnd = i < 0 ? 0 : blocks * layout.blockTokens;
    const program = prefill.submit([
      {
        ...bufferToStaging(counters, {
          buffer: buffer.geometry,
          staging: staging.geometry,
          bufferSlots: from.offset,
          stagingSlots: staged.offset,
          blocks,
          blockTokens: layout.blockTokens,
          computeFrom: tokenEnd,
        }),
        tokenEnd,
      },
      // No device computes here: the arrival of a layer stands for it.
      {
        op: 'bump',
        steps: layers,
        waits: [counters.arrived()],
        signals: [{ counter: counters.computed, value: 1 }],
      },
      stagingToDecodeBuffer(counters, {
        peer,
        staging: staging.geometry,
        decodeBuffer: target.geometry,
        stagingSlots: staged.offset,
        decodeSlots: list,
        firstBlock: 0,
        blocks,
        tokenBegin: 0,
        tokenEnd,
        sent,
        windowEnd: 0,
      }),
    ]);
    if (i >= -500) (i < 0 ? warmUs : us).push((performance.now() - start) * 1000);
    bytesMoved += (await program.done).bytesMoved;
    prefill.counters.giveBack(sent, 1);
    counters.release();
    prefill.slotTable.giveBack(list, blocks);
    staged.release();
    from.release();
  }
  return { us, warmUs, bytesMoved };
}

/** Runs 61 emulated layers, and blocks the event loop in the middle. */
async function layerLateness(stepUs: number, blockMs: number): Promise<Lateness> {
  await using engine = new TransferEngine({ name: 'bench-stream' });
  const gpu = new EmulatedGpu(engine);
  const counter = engine.takeCounters(1);
  const finishedUs: number[] = [];
  const program = engine.submit(
    [{ op: 'bump', steps: layers, waits: [{ counter, value: 1, valueStep: 1 }], event: true }],
    (_, us) => finishedUs.push(us),
  );
  gpu.launch({ steps: layers, stepDurationS: stepUs / 1e6, signals: [{ counter, value: 1 }] });
  if (blockMs > 0) {
    await new Promise((resolve) => setTimeout(resolve, 20));
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, blockMs);
  }
  await program.done;
  gpu.close();
  const first = finishedUs[0]!;
  const late = finishedUs.map((us, layer) => Math.abs(us - first - layer * stepUs));
  return { p50: quantile(late, 0.5), p90: quantile(late, 0.9), max: Math.max(...late) };
}

/** Bytes the JavaScript heap has grown by after copying so many blocks. */
async function heapGrowth(total: number, signal: AbortSignal | undefined): Promise<number> {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const small = 4096;
  await using engine = new TransferEngine({ name: 'bench-heap' });
  const space = new BlockSpace(engine, stagingGeometry(layout, 2 * small, 1, 'bench/heap'));
  const from = await space.take(small);
  const to = await space.take(small);
  const copy = (): Promise<unknown> =>
    engine.submit([
      {
        op: 'copy',
        from: space.geometry,
        to: space.geometry,
        fromSlots: from.offset,
        toSlots: to.offset,
        blocks: small,
        firstBlock: 0,
        tokenBegin: 0,
        tokenEnd: small * layout.blockTokens,
        layers: 1,
      },
    ]).done;
  for (let i = 0; i < 100; i++) await copy();
  collect();
  const before = process.memoryUsage().heapUsed;
  for (let done = 0; done < total; done += small) {
    signal?.throwIfAborted();
    await copy();
  }
  collect();
  return process.memoryUsage().heapUsed - before;
}
