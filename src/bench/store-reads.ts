/**
 * The whole way of a block: files of the block store read by an engine's READ programs (open, read, verify, close
 * for each), which is more than a range of an open file costs.
 */
import { join } from 'node:path';
import { blockLayout, parseModel } from '../layout/index.js';
import { bufferGeometry, BlockSpace } from '../memory/index.js';
import { BlockStore } from '../storage/index.js';
import { Runtime, TransferEngine } from '../transfer/index.js';
import { median } from './paired.js';

export interface StoreReads {
  readonly fileBytes: number;
  readonly files: number;
  readonly bytesPerS: number;
  readonly operationsPerS: number;
  /** User and system time of the whole process. */
  readonly cpuNsPerByte: number;
  /** Share of the bytes that went through registered buffers. */
  readonly registeredShare: number;
  readonly directIo: boolean;
}

export interface StoreReadsOptions {
  /** An empty directory of its own. */
  readonly path: string;
  /** Of a block's file: 8192 or more, a multiple of 4096. */
  readonly fileBytes: number;
  /** Of the files together, at least four runs. */
  readonly storedBytes: number;
  readonly sliceS: number;
  readonly slices: number;
  readonly storageIo: 'auto' | 'io_uring' | 'thread_pool';
  readonly signal?: AbortSignal | undefined;
}

const headerBytes = 4096;
const blockTokens = 16;
const maxFiles = 4096;
/** A program reads a run of this many blocks of the chain; two programs are under way. */
const runBlocks = 64;

export async function measureStoreReads(options: StoreReadsOptions): Promise<StoreReads> {
  const layout = blockLayout(
    parseModel(
      JSON.stringify({
        name: 'bench-storage',
        revision: '1',
        dtype: 'u8',
        layers: 1,
        groups: [
          {
            name: 'kv',
            layers: 'all',
            planes: [{ name: 'kv', bytes_per_token: (options.fileBytes - headerBytes) / blockTokens }],
            sharding: 'replicated',
          },
        ],
      }),
      'bench-storage',
    ),
    { blockTokens },
  );
  const store = BlockStore.open({ path: join(options.path, 'store'), layout });
  const runtime = new Runtime({ storageIo: options.storageIo });
  try {
    await using engine = new TransferEngine({ name: options.path, runtime, store: store.handle });
    const run = Math.min(runBlocks, Math.floor((64 << 20) / options.fileBytes));
    const files = Math.min(maxFiles, Math.max(4 * run, Math.floor(options.storedBytes / options.fileBytes)));
    const space = new BlockSpace(
      engine,
      bufferGeometry(layout, store.file, 2 * run, `${options.path}/buffer`),
    );
    const lists = await Promise.all([space.take(run), space.take(run)]);
    const keys = engine.keyTable.take(files);
    await engine.hash(new Uint32Array(files * blockTokens).fill(7), {
      firstToken: 0,
      blockTokens,
      blocks: files,
      keyOffset: keys,
      lookUp: false,
    });
    const program = (op: 'read' | 'write', first: number, blocks: number, list: number): Promise<unknown> =>
      engine.submit([
        { op, geometry: space.geometry, keys: keys + first, slots: lists[list]!.offset, blocks },
      ]).done;
    for (let first = 0; first < files; first += run) {
      options.signal?.throwIfAborted();
      await program('write', first, Math.min(run, files - first), 0);
    }
    const rates: Sample[] = [];
    for (let i = 0; i < options.slices; i++) {
      options.signal?.throwIfAborted();
      rates.push(
        await readSlice(engine, options.sliceS, (list) => program('read', at(files - run), run, list)),
      );
    }
    const { registeredBytes, readBytes, writeBytes, directIo } = engine.statistics();
    const bytesPerS = median(rates.map((rate) => rate.bytesPerS));
    return {
      fileBytes: store.file.fileBytes,
      files,
      bytesPerS,
      operationsPerS: bytesPerS / store.file.fileBytes,
      cpuNsPerByte: median(rates.map((rate) => rate.cpuNsPerByte)),
      registeredShare: registeredBytes / (readBytes + writeBytes),
      directIo,
    };
  } finally {
    runtime.close();
  }
}

interface Sample {
  readonly bytesPerS: number;
  readonly cpuNsPerByte: number;
}

/** A block at random, of 0 .. last. Which ones does not matter, so they need not be the same every time. */
function at(last: number): number {
  return Math.floor(Math.random() * (last + 1));
}

async function readSlice(
  engine: TransferEngine,
  sliceS: number,
  read: (list: number) => Promise<unknown>,
): Promise<Sample> {
  const before = engine.statistics().readBytes;
  const cpuBefore = process.cpuUsage();
  const started = performance.now();
  const reader = async (list: number): Promise<void> => {
    while (performance.now() - started < sliceS * 1000) await read(list);
  };
  await Promise.all([reader(0), reader(1)]);
  const elapsedS = (performance.now() - started) / 1000;
  const cpu = process.cpuUsage(cpuBefore);
  const bytes = engine.statistics().readBytes - before;
  return { bytesPerS: bytes / elapsedS, cpuNsPerByte: ((cpu.user + cpu.system) * 1000) / bytes };
}
