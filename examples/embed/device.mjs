/**
 * What stands for a GPU in these examples: an emulated one that takes modelled time, writes KV and checks, byte by
 * byte, the KV that attention reads. A real engine launches its own kernels here.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { EmulatedGpu, KvSeeds } from 'dualpath';

export function openDevice(traffic) {
  const gpu = new EmulatedGpu(traffic.engine);
  return {
    /** Reads the KV of tokens [0, cached) and writes that of the rest, a kernel a layer; `waits` holds each back. */
    async prefill({ tokens, cached, geometry, blockTable, waits = [] }) {
      const { layout } = traffic;
      const blocks = layout.blocksFor(tokens.length);
      const list = traffic.list({ geometry, blocks, blockTable });
      const body = {
        ...{ geometry, list: list.offset, count: blocks, firstBlock: 0, seeds: new KvSeeds(tokens) },
        ...{ checkBegin: 0, checkEnd: cached, windowEnd: 0 },
        ...{ writeBegin: cached, writeEnd: tokens.length },
      };
      const stepDurationS = 20e-6 + (tokens.length - cached) * 1e-6;
      await gpu.run({ steps: layout.layers, stepDurationS, waits, bodies: [body] });
      list.release();
    },
    /** What has been checked so far. */
    get report() {
      const { checkedBytes, mismatchedBytes } = gpu.statistics();
      return `${checkedBytes} bytes of KV checked, ${mismatchedBytes} wrong (emulated GPU)`;
    },
    get wrongBytes() {
      return gpu.statistics().mismatchedBytes;
    },
    close: () => gpu.close(),
  };
}

/** A store directory that goes with the process. */
export function scratchStore() {
  const directory = mkdtempSync(join(tmpdir(), 'dualpath-embed-'));
  process.on('exit', () => rmSync(directory, { recursive: true, force: true }));
  return join(directory, 'store');
}

/** Pages that lie wherever there was room. */
export function openPages(count) {
  const free = Array.from({ length: count }, (_, i) => (i * 37 + 5) % count);
  return { take: (n) => free.splice(0, n), giveBack: (pages) => free.push(...pages) };
}

export const conversation = (length, seed = 1) =>
  Uint32Array.from({ length }, (_, i) => Math.imul(i + seed, 2654435761) >>> 8);
