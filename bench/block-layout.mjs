/**
 * A file a block, or slots of one large file? Both through the ring of the data path (registered buffers, direct
 * descriptors, O_DIRECT), so that only what differs is measured:
 *
 *   files     read: open, read, close        write: create, write, rename, close
 *   segments  read: a range of an open file  write: a range of an open file that is laid out
 *
 * A round measures both, the one that begins alternating. `cold`: after the kernel dropped its names and inodes (as
 * root only), each block read once. Needs 2 * rounds * 5 * total bytes of the disk; on ext4 wait for a minute after many
 * files were deleted there.
 *
 *   node bench/block-layout.mjs [--path DIRECTORY] [--rounds N] [--total BYTES] [--depth N]
 *        [--slice SECONDS] [--warm-only] [--json]
 */
import { mkdtempSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { estimateRatio, median } from '../dist/bench/paired.js';
import { native } from '../dist/binding/index.js';
import { formatBytes, formatBytesPerSecond, renderTable } from '../dist/telemetry/index.js';

const sizes = [64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];

const { values } = parseArgs({
  options: {
    path: { type: 'string', default: tmpdir() },
    rounds: { type: 'string', default: '5' },
    total: { type: 'string', default: String(256 << 20) },
    depth: { type: 'string', default: '16' },
    slice: { type: 'string', default: '1' },
    'warm-only': { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
  },
});
const rounds = Number(values.rounds);
const totalBytes = Number(values.total);
const depth = Number(values.depth);
const sliceNs = Number(values.slice) * 1e9;
const canDropCaches = process.getuid() === 0 && !values['warm-only'];

function dropNames() {
  writeFileSync('/proc/sys/vm/drop_caches', '2');
}

/** Bytes per second and CPU per byte of one slice. */
async function slice(load) {
  const result = await native().runStorageLoad({ depth, durationNs: sliceNs, ...load });
  return {
    bytesPerS: (result.bytes / result.elapsedNs) * 1e9,
    cpuNsPerByte: result.cpuNs / result.bytes,
  };
}

async function round(folder, bytes, number) {
  const places = Math.floor(totalBytes / bytes);
  const directory = join(folder, `files-${bytes}-${number}`);
  const segment = join(folder, `segment-${bytes}-${number}`);
  mkdirSync(directory);
  await native().layOutStorageFile({ path: segment, bytes: places * bytes, sizes: [] });
  const files = { path: directory, bytes, places, seed: number };
  const ranges = { path: segment, bytes, places, seed: number };
  const whole = { durationNs: 600e9 };
  const steps = {
    write: [
      () => slice({ ...files, ...whole, kind: 'writeFiles' }),
      () => slice({ ...ranges, ...whole, kind: 'writeRanges' }),
    ],
    warm: [() => slice({ ...files, kind: 'readFiles' }), () => slice({ ...ranges, kind: 'readRanges' })],
    ...(canDropCaches && {
      cold: [
        () => (dropNames(), slice({ ...files, ...whole, once: true, kind: 'readFiles' })),
        () => (dropNames(), slice({ ...ranges, ...whole, once: true, kind: 'readRanges' })),
      ],
    }),
  };
  const measured = {};
  for (const [name, [ofFiles, ofSegments]] of Object.entries(steps)) {
    if (number % 2 === 0) {
      measured[name] = { files: await ofFiles(), segments: await ofSegments() };
    } else {
      const segments = await ofSegments();
      measured[name] = { files: await ofFiles(), segments };
    }
  }
  return measured; // what was written stays to the end: ext4 is slow to hand out inodes just after deletions
}

function summarize(bytes, measured) {
  return Object.keys(measured[0]).map((name) => {
    const samples = measured.map((one) => one[name]);
    const of = (kind, key) => median(samples.map((sample) => sample[kind][key]));
    const { ratio, halfWidth } = estimateRatio(
      samples.map(({ files, segments }) => [segments.bytesPerS, files.bytesPerS]),
    );
    return {
      block_bytes: bytes,
      load: name === 'write' ? 'write' : `read ${name}`,
      files_bytes_per_s: of('files', 'bytesPerS'),
      segments_bytes_per_s: of('segments', 'bytesPerS'),
      segments_over_files: ratio,
      half_width: halfWidth,
      files_cpu_ns_per_byte: of('files', 'cpuNsPerByte'),
      segments_cpu_ns_per_byte: of('segments', 'cpuNsPerByte'),
    };
  });
}

const folder = mkdtempSync(join(values.path, 'dualpath-layout-'));
process.once('SIGINT', () => {
  rmSync(folder, { recursive: true, force: true });
  process.exit(130);
});
try {
  const results = [];
  for (const bytes of sizes) {
    console.error(`measuring: blocks of ${formatBytes(bytes)}`);
    const measured = [];
    for (let number = 0; number < rounds; number++) measured.push(await round(folder, bytes, number));
    results.push(...summarize(bytes, measured));
  }
  if (!canDropCaches && !values['warm-only'])
    console.error('cold reads are left out: dropping names needs root');
  console.log(values.json ? JSON.stringify({ depth, rounds, results }, null, 2) : table(results));
} finally {
  rmSync(folder, { recursive: true, force: true });
}

function table(results) {
  return renderTable({
    head: ['block', 'load', 'files', 'segments', 'segments / files', 'CPU files', 'CPU segments (ns/B)'],
    rows: results.map((row) => [
      formatBytes(row.block_bytes),
      row.load,
      formatBytesPerSecond(row.files_bytes_per_s),
      formatBytesPerSecond(row.segments_bytes_per_s),
      `${row.segments_over_files.toFixed(2)} +- ${row.half_width.toFixed(2)}`,
      row.files_cpu_ns_per_byte.toFixed(3),
      row.segments_cpu_ns_per_byte.toFixed(3),
    ]),
  });
}
