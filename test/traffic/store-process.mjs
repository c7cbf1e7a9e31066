/** Saves sequences into a store: node store-process.mjs STORE COUNT [stay] */
import { Arena, BlockStore, blockLayout, presets, Runtime, TrafficManager } from '../../dist/index.js';

const [, , path, count, stay] = process.argv;
const blocks = 16;
const layout = blockLayout(
  presets.find((model) => model.name === 'demo'),
  { blockTokens: 16 },
);
const store = BlockStore.open({ path, layout });
const runtime = new Runtime();
const manager = new TrafficManager({ name: 'child', layout, store, bufferBlocks: blocks, runtime });
const arena = new Arena({ name: 'memory', bytes: blocks * layout.fullBlockBytes, lock: 'none' });
const geometry = manager.adopt({
  arena: arena.handle,
  offsetBytes: 0,
  slotStrideBytes: layout.fullBlockBytes,
  slots: blocks,
  blockTokens: layout.blockTokens,
  layers: Array.from({ length: layout.layers }, (_, layer) => ({
    offsetBytes: layout.layerOffsetBytes(layer),
    planes: layout.planesOf(layer).map(({ offsetBytes, bytesPerToken, windowTokens }) => ({
      ...{ offsetBytes, bytesPerToken, windowTokens },
    })),
  })),
});
const bytes = new Uint8Array(arena.buffer);
const blockTable = Array.from({ length: blocks }, (_, i) => i);

/** Sequence n: its tokens are n, n, n, ... and so are the bytes of its KV. */
for (let n = 1; n <= Number(count); n++) {
  const tokens = new Uint32Array(blocks * layout.blockTokens + 1).fill(n);
  const chain = await manager.hash(tokens);
  bytes.fill(n & 0xff);
  await manager.save({ chain, firstBlock: 0, blocks, geometry, blockTable }).done;
  chain.release();
  process.stdout.write(`${n}\n`);
}
if (stay === undefined) {
  await manager.close();
  runtime.close(); // otherwise it keeps the process alive until somebody kills it
}
