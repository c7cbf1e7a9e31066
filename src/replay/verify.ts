/** After a run: every block that the sessions left in the store is read again and each byte compared. */
import { threadId } from 'node:worker_threads';
import { EmulatedGpu, KvSeeds } from '../emulation/index.js';
import { readBlocks } from '../flow/index.js';
import type { BlockStore } from '../storage/index.js';
import { TrafficManager } from '../traffic/index.js';

const batchBlocks = 256;

export interface StoreCheck {
  readonly blocks: number;
  readonly checkedBytes: number;
  readonly mismatchedBytes: number;
}

let verifiers = 0;

/** @param conversations the final tokens of each session; only their stored leading blocks are read */
export async function verifyStore(
  store: BlockStore,
  conversations: AsyncIterable<Uint32Array> | Iterable<Uint32Array>,
  signal?: AbortSignal,
): Promise<StoreCheck> {
  const { layout } = store;
  const traffic = new TrafficManager({
    name: `verifier-${threadId}-${++verifiers}`,
    layout,
    store,
    bufferBlocks: batchBlocks,
  });
  const gpu = new EmulatedGpu(traffic.engine);
  const { engine, buffer } = traffic;
  const slots = await buffer.take(batchBlocks);
  let blocks = 0;
  try {
    for await (const tokens of conversations) {
      const chain = await traffic.lookup(tokens);
      const seeds = new KvSeeds(tokens);
      for (let first = 0; first < chain.hitBlocks; first += batchBlocks) {
        signal?.throwIfAborted();
        const count = Math.min(batchBlocks, chain.hitBlocks - first);
        const read = readBlocks({
          geometry: buffer.geometry,
          keys: chain.offset + first,
          slots: slots.offset,
          blocks: count,
        });
        await engine.submit([read]).done;
        const checkBegin = first * layout.blockTokens;
        const checkEnd = (first + count) * layout.blockTokens;
        await gpu.run({
          allLayers: true,
          stepDurationS: 0,
          bodies: [
            {
              geometry: buffer.geometry,
              list: slots.offset,
              count,
              firstBlock: first,
              seeds,
              checkBegin,
              checkEnd,
              writeBegin: 0,
              writeEnd: 0,
              windowEnd: 0,
            },
          ],
        });
        blocks += count;
      }
      chain.release();
    }
    const { checkedBytes, mismatchedBytes } = gpu.statistics();
    return { blocks, checkedBytes, mismatchedBytes };
  } finally {
    slots.release();
    await traffic.close();
    gpu.close();
  }
}
