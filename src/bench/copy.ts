/**
 * Copies of Layer Blocks between a buffer and (emulated) HBM: through the NIC, by memcpy and, where there is a CUDA driver,
 * by cudaMemcpyAsync. Each way is an engine of its own that runs the same COPY descriptors, the product's own path; rounds
 * of the ways take turns.
 */
import { CopyNic, type CopyNicOptions } from '../rdma/index.js';
import { native } from '../binding/index.js';
import { Arena, CudaDevice, Region } from '../memory/index.js';
import { Runtime, TransferEngine, type Descriptor } from '../transfer/index.js';
import { median } from './paired.js';

export interface CopyBenchOptions {
  readonly signal?: AbortSignal;
  readonly onProgress?: (step: string) => void;
  /** A device for the way `nic`; left out: the strict stub provider, named emulated. */
  readonly nic?: Pick<CopyNicOptions, 'device' | 'port' | 'gidIndex' | 'linkLayer'>;
  /** CUDA's driver, in place of libcuda.so.1. */
  readonly cudaLibrary?: string;
  /** Odd, so that there is a middle one; default 5. */
  readonly rounds?: number;
  /** Of a round, about; default 8 MiB. */
  readonly roundBytes?: number;
}

export interface CopyWayResult {
  readonly bytesPerS: number;
  readonly minBytesPerS: number;
  readonly maxBytesPerS: number;
  /** Of a Layer Block, from the program's submission to its end; median of the rounds. */
  readonly usPerBlock: number;
  /** Bytes that the statistics say this way carried, of all that were moved. */
  readonly carriedShare: number;
  readonly mismatchedBlocks: number;
}

export interface CopyNicCounts {
  readonly chains: number;
  readonly postCallsPerChain: number;
  readonly completionsPerChain: number;
  readonly requestsPerBlock: number;
}

export interface CopyResult {
  readonly model: string;
  readonly layout: 'contiguous' | 'scattered' | 'heads';
  readonly blockBytes: number;
  readonly piecesPerBlock: number;
  readonly blocks: number;
  readonly ways: Readonly<Record<'nic' | 'memcpy', CopyWayResult>> & { readonly cuda?: CopyWayResult };
  readonly nic: CopyNicCounts;
}

export interface CopyBenchResult {
  readonly results: readonly CopyResult[];
  readonly provider: string;
  readonly device: string;
  readonly emulated: boolean;
  /** The GPU, or why there is none. */
  readonly cuda: string;
}

interface Case {
  readonly model: string;
  readonly layout: CopyResult['layout'];
  /** Bytes a token of each plane. */
  readonly planes: readonly number[];
  /** Of each plane, in pages of an engine, for `heads`. */
  readonly headBytes?: number;
}

const blockTokens = 64;
const layers = 4;
const cases: readonly Case[] = [
  // MLA's latent (656 bytes in fp8) and the indexer's keys (132).
  { model: 'ds-v3.2', layout: 'contiguous', planes: [656, 132] },
  { model: 'ds-v3.2', layout: 'scattered', planes: [656, 132] },
  // K and V of 8 heads of 128 values of 2 bytes (Qwen2.5-32B).
  { model: 'gqa', layout: 'contiguous', planes: [2048, 2048] },
  { model: 'gqa', layout: 'scattered', planes: [2048, 2048] },
  { model: 'gqa', layout: 'heads', planes: [2048, 2048], headBytes: 256 },
];

type Way = 'nic' | 'memcpy' | 'cuda';

interface Mover {
  readonly way: Way;
  readonly engine: TransferEngine;
  readonly nic: CopyNic | undefined;
  readonly program: Descriptor;
  /** Blocks that are wrong; memory of a GPU is not looked at. */
  readonly verify: () => number;
  readonly rates: number[];
  readonly us: number[];
}

export async function benchCopy(options: CopyBenchOptions = {}): Promise<CopyBenchResult> {
  const runtime = new Runtime();
  try {
    const { device, cuda } = openCuda(options.cudaLibrary);
    const results: CopyResult[] = [];
    let facts = { provider: '', device: '', emulated: false };
    for (const one of cases) {
      options.onProgress?.(`${one.model}, ${one.layout}`);
      const { result, nic } = await measure(one, options, runtime, device);
      results.push(result);
      facts = nic;
    }
    return { results, ...facts, cuda };
  } finally {
    runtime.close();
  }
}

function openCuda(library?: string): { device: CudaDevice | undefined; cuda: string } {
  try {
    const device = new CudaDevice({ ordinal: 0, ...(library === undefined ? {} : { library }) });
    return { device, cuda: device.facts.name };
  } catch (error) {
    return { device: undefined, cuda: error instanceof Error ? error.message : String(error) };
  }
}

async function measure(
  one: Case,
  options: CopyBenchOptions,
  runtime: Runtime,
  device: CudaDevice | undefined,
): Promise<{ result: CopyResult; nic: { provider: string; device: string; emulated: boolean } }> {
  const blockBytes = blockTokens * one.planes.reduce((sum, bytes) => sum + bytes, 0);
  const blocks = Math.max(2, Math.floor((options.roundBytes ?? 8 << 20) / blockBytes / layers));
  const ways: Way[] = ['nic', 'memcpy', ...(device === undefined ? [] : (['cuda'] as const))];
  const movers = ways.map((way) => openMover(way, one, blocks, options, runtime, device));
  const rounds = options.rounds ?? 5;
  for (let round = 0; round <= rounds; round++) {
    for (const mover of movers) {
      options.signal?.throwIfAborted();
      const { bytesMoved, submittedUs, finishedUs } = await mover.engine.submit([mover.program]).done;
      if (round === 0) continue; // memory is registered and touched
      mover.rates.push((bytesMoved * 1e6) / (finishedUs - submittedUs));
      mover.us.push((finishedUs - submittedUs) / blocks / layers);
    }
  }
  const results = Object.fromEntries(movers.map((mover) => [mover.way, wayResult(mover)]));
  const counts = movers[0]!.nic!.statistics();
  const moved = (rounds + 1) * blocks * layers;
  const result: CopyResult = {
    ...{ model: one.model, layout: one.layout, blockBytes, blocks: blocks * layers },
    piecesPerBlock:
      one.headBytes === undefined
        ? one.planes.length
        : (blockTokens * blockBytes) / blockTokens / one.headBytes,
    ways: results as CopyResult['ways'],
    nic: {
      chains: counts.chains,
      postCallsPerChain: counts.postCalls / counts.chains,
      completionsPerChain: counts.completions / counts.chains,
      requestsPerBlock: counts.requests / moved,
    },
  };
  await Promise.all(movers.map(({ engine }) => engine.close()));
  return { result, nic: { provider: counts.provider, device: counts.device, emulated: counts.emulated } };
}

function wayResult(mover: Mover): CopyWayResult {
  const { copyBytes, copyBytesByWay } = mover.engine.statistics();
  return {
    bytesPerS: median(mover.rates),
    minBytesPerS: Math.min(...mover.rates),
    maxBytesPerS: Math.max(...mover.rates),
    usPerBlock: median(mover.us),
    carriedShare: copyBytesByWay[mover.way] / copyBytes,
    mismatchedBlocks: mover.verify(),
  };
}

let named = 0;

function openMover(
  way: Way,
  one: Case,
  blocks: number,
  options: CopyBenchOptions,
  runtime: Runtime,
  device: CudaDevice | undefined,
): Mover {
  const engine = new TransferEngine({
    ...{ name: `bench-copy-${named++}`, runtime, copyWay: way === 'nic' ? 'nic' : 'plain' },
  });
  const memory = layOut(engine, one, blocks, way === 'cuda' ? device : undefined);
  const provider = {
    provider: new (native().StubFabric)({ name: 'bench copy' }),
    device: 'stub0',
    gidIndex: 2,
  };
  const nic = way === 'nic' ? new CopyNic({ engine, ...(options.nic ?? provider) }) : undefined;
  return { way, engine, nic, ...memory, rates: [], us: [] };
}

/** Full Blocks in a buffer, filled; Layer Blocks or pages in HBM; and the copy from the one to the other. */
function layOut(
  engine: TransferEngine,
  one: Case,
  blocks: number,
  cuda: CudaDevice | undefined,
): Pick<Mover, 'program' | 'verify'> {
  const blockBytes = blockTokens * one.planes.reduce((sum, bytes) => sum + bytes, 0);
  const bytes = blocks * layers * blockBytes;
  const buffer = new Arena({ name: 'bench copy: buffer', bytes, lock: 'none' });
  const hbm = new Arena({
    ...{ name: 'bench copy: HBM', bytes, lock: 'none', emulatedHbm: true },
    ...(cuda === undefined ? {} : { cuda }),
  });
  const words = new Uint32Array(buffer.buffer);
  words.forEach((_, i) => (words[i] = Math.imul(i, 2654435761)));
  const stacked = planesOf(one.planes);
  const from = engine.addGeometry({
    ...{
      arena: buffer.handle,
      offsetBytes: 0,
      slotStrideBytes: layers * blockBytes,
      slots: blocks,
      blockTokens,
    },
    layers: Array.from({ length: layers }, (_, l) => ({ offsetBytes: l * blockBytes, planes: stacked })),
  });
  const to =
    one.headBytes === undefined
      ? engine.addGeometry({
          ...{ arena: hbm.handle, offsetBytes: 0, slotStrideBytes: blockBytes, slots: blocks, blockTokens },
          layers: Array.from({ length: layers }, (_, l) => ({
            offsetBytes: l * blocks * blockBytes,
            planes: stacked,
          })),
        })
      : engine.addGeometry(headPages(one, blocks, Region.ofArena('bench copy: pages', hbm)));
  const slots = Array.from({ length: blocks }, (_, i) => i);
  const targets =
    one.layout === 'contiguous' ? slots : slots.map((slot) => (slot * scatter(blocks)) % blocks);
  const lists = engine.slotTable.take(2 * blocks);
  engine.setSlots(lists, slots);
  engine.setSlots(lists + blocks, targets);
  const program: Descriptor = {
    ...{ op: 'copy', from, to, fromSlots: lists, toSlots: lists + blocks, blocks, layers },
    ...{ firstBlock: 0, tokenBegin: 0, tokenEnd: blocks * blockTokens },
  };
  const verify = (): number => (cuda !== undefined ? 0 : mismatches(buffer, hbm, one, targets));
  return { program, verify };
}

/** Prime to the number of blocks, so that each comes once, far from the one before. */
function scatter(blocks: number): number {
  const gcd = (a: number, b: number): number => (b === 0 ? a : gcd(b, a % b));
  let step = Math.max(1, Math.floor(blocks * 0.618));
  while (gcd(step, blocks) !== 1) step++;
  return step;
}

function planesOf(sizes: readonly number[]): { offsetBytes: number; bytesPerToken: number }[] {
  let offsetBytes = 0;
  return sizes.map((bytesPerToken) => {
    const plane = { offsetBytes, bytesPerToken };
    offsetBytes += bytesPerToken * blockTokens;
    return plane;
  });
}

/** HND pages: of each plane and head a run of tokens by itself. */
function headPages(one: Case, pages: number, region: Region) {
  const blockBytes = blockTokens * one.planes.reduce((sum, bytes) => sum + bytes, 0);
  const head = one.headBytes!;
  return {
    ...{ blockTokens, tables: [{ name: 'kv', pages, pageTokens: blockTokens }] },
    layers: Array.from({ length: layers }, (_, l) =>
      planesOf(one.planes).map(({ offsetBytes, bytesPerToken }) => ({
        ...{ table: 0, windowTokens: 0 },
        parts: Array.from({ length: bytesPerToken / head }, (__, h) => ({
          ...{ region: region.handle, pageStrideBytes: blockBytes, tokenStrideBytes: head, bytes: head },
          offsetBytes: l * pages * blockBytes + offsetBytes + h * blockTokens * head,
        })),
      })),
    ),
  };
}

/** Layer Blocks that are not what was to be copied. */
function mismatches(buffer: Arena, hbm: Arena, one: Case, targets: readonly number[]): number {
  const blockBytes = blockTokens * one.planes.reduce((sum, bytes) => sum + bytes, 0);
  let wrong = 0;
  for (let l = 0; l < layers; l++) {
    for (const [slot, target] of targets.entries()) {
      const source = Buffer.from(buffer.buffer, (slot * layers + l) * blockBytes, blockBytes);
      const there = Buffer.from(hbm.buffer, (l * targets.length + target) * blockBytes, blockBytes);
      const same = one.headBytes === undefined ? source.equals(there) : equalHeads(source, there, one);
      if (!same) wrong++;
    }
  }
  return wrong;
}

function equalHeads(source: Buffer, there: Buffer, one: Case): boolean {
  const head = one.headBytes!;
  return planesOf(one.planes).every(({ offsetBytes, bytesPerToken }) => {
    const heads = bytesPerToken / head;
    for (let t = 0; t < blockTokens; t++) {
      for (let h = 0; h < heads; h++) {
        const here = offsetBytes + t * bytesPerToken + h * head;
        const at = offsetBytes + (h * blockTokens + t) * head;
        if (source.compare(there, at, at + head, here, here + head) !== 0) return false;
      }
    }
    return true;
  });
}
