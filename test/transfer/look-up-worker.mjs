/** Looks up without end, 64 at a time, until it is terminated. */
import { parentPort, workerData } from 'node:worker_threads';
import { BlockStore, blockLayout, presets, TrafficManager } from '../../dist/index.js';

const layout = blockLayout(
  presets.find((model) => model.name === 'demo'),
  { blockTokens: 16 },
);
const store = BlockStore.open({ path: workerData, layout });
const manager = new TrafficManager({ name: `look-up-${Math.random()}`, layout, store, bufferBlocks: 1 });
const tokens = new Uint32Array(16 * 256);
for (let n = 0; ; n++) {
  tokens.fill(n);
  const chains = await Promise.all(Array.from({ length: 64 }, () => manager.lookup(tokens)));
  for (const chain of chains) chain.release();
  if (n === 0) parentPort.postMessage('going');
}
