#!/usr/bin/env node
/**
 * A soak: blocks through save, load and copy for as long as asked, and whether anything grows meanwhile.
 *
 *   node scripts/soak.mjs [--blocks 200000] [--path /dev/shm]
 *
 * Blocks are small (1 KiB of KV, files of 8 KiB) and the store lies in memory, so that ten million of them take
 * minutes and what costs per block shows. Of four blocks moved one is saved (memory -> buffer -> a new file), two
 * are loaded (file -> buffer -> memory) and one is copied (memory -> memory). Every 128 * 1024 saved blocks the
 * store is closed and removed and another opened, with a new manager, buffers and registrations.
 *
 * Prints one JSON document; ends with 1 when a limit in it is passed. Needs what `npm run setup` builds.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { PerformanceObserver, constants } from 'node:perf_hooks';
import { parseArgs } from 'node:util';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Arena, BlockStore, Runtime, TrafficManager, blockLayout, sequenceGeometry } from '../dist/index.js';

const sequenceBlocks = 256;
const sequences = 4; // under way at once
const savedPerStore = 128 * 1024;
const blockTokens = 8;
const layout = blockLayout(
  {
    ...{ name: 'soak', revision: '1', dtype: 'test', layers: 2 },
    groups: [
      {
        ...{ name: 'kv', layers: [0, 1], windowTokens: 0, sharding: 'replicated' },
        planes: [{ name: 'latent', bytesPerToken: 64 }],
      },
    ],
  },
  { blockTokens },
);

/**
 * Of the measured part of the run, what follows the warm-up. Growth that is still called flat: what is freed late makes
 * some noise. Pauses: of collections that this script does not force.
 */
const limits = {
  rss_growth_bytes: 24 * 2 ** 20,
  heap_growth_bytes: 8 * 2 ** 20,
  gc_p99_ms: 10,
  fd_growth: 0,
};
const warmUpShare = 0.2;

const { values } = parseArgs({
  options: { blocks: { type: 'string', default: '200000' }, path: { type: 'string', default: '/dev/shm' } },
});
const wanted = Number(values.blocks);
if (!Number.isSafeInteger(wanted) || wanted < 1) {
  console.error(`--blocks ${values.blocks}: a whole number of at least 1 is needed, as in --blocks 10000000`);
  process.exit(2);
}

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc');

const moved = { saved: 0, loaded: 0, copied: 0 };
const total = () => moved.saved + moved.loaded + moved.copied;
const warm = () => total() >= warmUpShare * wanted;

const pauses = { ms: [], warmUpMs: [], forced: 0, major: 0 };
new PerformanceObserver((list) => {
  for (const { duration, detail } of list.getEntries()) {
    if ((detail.flags & constants.NODE_PERFORMANCE_GC_FLAGS_FORCED) !== 0) pauses.forced++;
    else {
      (warm() ? pauses.ms : pauses.warmUpMs).push(duration);
      if (detail.kind === constants.NODE_PERFORMANCE_GC_MAJOR) pauses.major++;
    }
  }
}).observe({ entryTypes: ['gc'] });

const samples = [];
const sample = () => {
  const { rss, heapUsed } = process.memoryUsage();
  samples.push({ blocks: total(), rss, heap: heapUsed });
};
const openFds = () => readdirSync('/proc/self/fd').length - 1; // the folder itself is one

let wrongBytes = 0;
let nextSeed = 0;

/** Memory of an engine's for one sequence at a time: what is saved, and where it is loaded to. */
function openMemory(manager, name) {
  const geometry = sequenceGeometry(layout, 2 * sequenceBlocks, name);
  const bytes = new Uint8Array(geometry.arena.buffer());
  return { geometry: manager.adopt(geometry), half: bytes.length / 2, bytes };
}

const slotsFrom = (first) => Array.from({ length: sequenceBlocks }, (_, i) => first + i);

/** Saves a sequence nobody has stored, loads it twice, copies it once. */
async function oneSequence(manager, { geometry, half, bytes }, check) {
  const seed = ++nextSeed;
  const tokens = Uint32Array.from({ length: sequenceBlocks * blockTokens + 1 }, (_, i) => seed * 7919 + i);
  const [mine, other] = [slotsFrom(0), slotsFrom(sequenceBlocks)];
  bytes.fill(seed & 0xff, 0, half);
  const chain = await manager.lookup(tokens);
  await manager.save({ chain, firstBlock: 0, blocks: sequenceBlocks, geometry, blockTable: mine }).done;
  moved.saved += sequenceBlocks;
  const found = await manager.lookup(tokens);
  for (let turn = 0; turn < 2; turn++) {
    if (check) bytes.fill(0, half);
    await manager.load({ chain: found, blocks: sequenceBlocks, geometry, blockTable: other }).done;
    moved.loaded += sequenceBlocks;
    if (check)
      wrongBytes += bytes.subarray(half).reduce((n, byte) => n + (byte === (seed & 0xff) ? 0 : 1), 0);
  }
  await copy(manager, geometry);
  moved.copied += sequenceBlocks;
  chain.release();
  found.release();
}

/** The sequence's slots onto the other half's. */
async function copy({ engine }, geometry) {
  const list = engine.slotTable.take(2 * sequenceBlocks);
  engine.setSlots(list, [...slotsFrom(0), ...slotsFrom(sequenceBlocks)]);
  await engine.submit([
    {
      ...{ op: 'copy', from: geometry, to: geometry, layers: layout.layers },
      ...{ fromSlots: list, toSlots: list + sequenceBlocks, blocks: sequenceBlocks, firstBlock: 0 },
      ...{ tokenBegin: 0, tokenEnd: sequenceBlocks * blockTokens },
    },
  ]).done;
  engine.slotTable.giveBack(list, 2 * sequenceBlocks);
}

/** One store's life: until it holds its share, or all blocks have been moved. */
async function oneStore(runtime, folder, name) {
  const path = join(folder, name);
  const store = BlockStore.open({ path, layout });
  const manager = new TrafficManager({
    ...{ name, layout, store, runtime, maxTokens: 4 * sequenceBlocks * blockTokens },
    bufferBlocks: 2 * sequences * sequenceBlocks,
  });
  const until = moved.saved + savedPerStore;
  let rounds = 0;
  const loop = async (memory) => {
    while (moved.saved < until && total() < wanted) {
      await oneSequence(manager, memory, rounds++ % 64 === 0);
      if (rounds % 16 === 0) sample();
    }
  };
  await Promise.all(Array.from({ length: sequences }, (_, i) => loop(openMemory(manager, `${name}/${i}`))));
  await manager.close();
  // Not by this process: a promise for each of so many files is not what this measures.
  await once(spawn('rm', ['-rf', path], { stdio: 'ignore' }), 'close');
}

/** Least squares: growth of y from the first to the last x. */
function growth(points, y) {
  const n = points.length;
  if (n < 2) return 0;
  const meanX = points.reduce((sum, p) => sum + p.blocks, 0) / n;
  const meanY = points.reduce((sum, p) => sum + y(p), 0) / n;
  let xy = 0;
  let xx = 0;
  for (const point of points) {
    xy += (point.blocks - meanX) * (y(point) - meanY);
    xx += (point.blocks - meanX) ** 2;
  }
  return xx === 0 ? 0 : (xy / xx) * (points.at(-1).blocks - points[0].blocks);
}

/** A heap goes up and down; its lowest points say what is kept. */
function lowest(points, windows, y) {
  const size = Math.max(1, Math.floor(points.length / windows));
  const low = [];
  for (let i = 0; i + size <= points.length; i += size) {
    low.push(points.slice(i, i + size).reduce((a, b) => (y(b) < y(a) ? b : a)));
  }
  return low;
}

const quantile = (sorted, q) => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? 0;

async function run() {
  const folder = mkdtempSync(join(values.path, 'dualpath-soak-'));
  const runtime = new Runtime();
  const keepAlive = new Arena({ name: 'soak', bytes: 4096, lock: 'none' }); // the first of everything is taken now
  const began = process.hrtime.bigint();
  const fds = [];
  try {
    for (let stores = 0; total() < wanted; stores++) {
      await oneStore(runtime, folder, `store-${stores}`);
      // What the collector may free is no leak: stores and memory go with their objects.
      for (let i = 0; i < 3; i++) {
        collect();
        await new Promise((resolve) => setImmediate(resolve));
      }
      fds.push(openFds());
      console.error(
        `${total()} of ${wanted} blocks, RSS ${process.memoryUsage().rss}, ${fds.at(-1)} descriptors`,
      );
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
    runtime.close();
  }
  return { seconds: Number(process.hrtime.bigint() - began) / 1e9, fds, kept: keepAlive.facts.bytes };
}

const { seconds, fds } = await run();
const measured = samples.filter(({ blocks }) => blocks >= warmUpShare * wanted);
const sorted = pauses.ms.toSorted((a, b) => a - b);
const figures = {
  rss_growth_bytes: Math.round(growth(measured, ({ rss }) => rss)),
  heap_growth_bytes: Math.round(
    growth(
      lowest(measured, 40, ({ heap }) => heap),
      ({ heap }) => heap,
    ),
  ),
  gc_p99_ms: quantile(sorted, 0.99),
  fd_growth: fds.at(-1) - fds[0],
};
const passed = wrongBytes === 0 && Object.entries(limits).every(([name, limit]) => figures[name] <= limit);
console.log(
  JSON.stringify({
    ...{
      blocks: total(),
      saved_blocks: moved.saved,
      loaded_blocks: moved.loaded,
      copied_blocks: moved.copied,
    },
    ...{ stores: fds.length, seconds, blocks_per_s: total() / seconds, wrong_bytes: wrongBytes },
    ...figures,
    gc_p50_ms: quantile(sorted, 0.5),
    gc_p90_ms: quantile(sorted, 0.9),
    gc_max_ms: sorted.at(-1) ?? 0,
    gc_warm_up_max_ms: Math.max(0, ...pauses.warmUpMs),
    gc_major: pauses.major,
    ...{ gc_pauses: sorted.length, gc_forced: pauses.forced, samples: measured.length },
    rss_first_bytes: measured[0]?.rss ?? 0,
    rss_last_bytes: measured.at(-1)?.rss ?? 0,
    ...{ fds_first: fds[0], fds_last: fds.at(-1), limits, passed },
  }),
);
process.exitCode = passed ? 0 : 1;
