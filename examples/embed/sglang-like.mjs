#!/usr/bin/env node
/**
 * An engine with a pool of tokens as SGLang has it: for each layer a K and a V buffer [tokens, heads, headSize], a
 * request's tokens anywhere in them, in memory that lies at an address of the engine's choosing.
 *
 *   npm run build && node examples/embed/sglang-like.mjs
 */
import {
  Arena,
  BlockStore,
  blockLayout,
  engineGeometry,
  Region,
  sglangAttention,
  TrafficManager,
} from 'dualpath';
import { conversation, openDevice, openPages, scratchStore } from './device.mjs';

const [layers, heads, headSize, elementBytes] = [3, 2, 32, 2];
const rowBytes = heads * headSize * elementBytes;
const keyAndValue = ['k', 'v'].map((name) => ({ name, bytesPerToken: rowBytes }));
const group = { name: 'kv', layers: [0, 1, 2], planes: keyAndValue, windowTokens: 0, kvHeads: heads };
const groups = [{ ...group, sharding: 'sharded' }];
const model = { name: 'example-mha', revision: '1', dtype: 'float16', layers, groups };

const layout = blockLayout(model, { blockTokens: 32 });
const store = BlockStore.open({ path: scratchStore(), layout });
// A block of 32 tokens has 32 pages: tables are sized for that.
const traffic = new TrafficManager({
  ...{ name: 'engine-0', layout, store, bufferBlocks: 16 },
  ...{ pagesPerBlock: 32, maxTokens: 65_536 },
});

const shape = { tokens: 4096, pageSize: 1, heads, headSize, elementBytes };
// Each buffer lies where the engine has it; the owner is kept as long as this process may touch it.
const bufferAt = (name) => {
  const owner = new Arena({ name, bytes: shape.tokens * rowBytes, emulatedHbm: true });
  const { address, bytes } = Region.ofArena(name, owner).facts; // an engine in C++ or Python says them
  return { memory: Region.ofAddress({ name, address, bytes, owner, emulatedHbm: true }) };
};
const buffers = Array.from({ length: layers }, (_, l) => ({ k: bufferAt(`k${l}`), v: bufferAt(`v${l}`) }));
const geometry = traffic.adopt(engineGeometry(layout, { kv: sglangAttention(buffers, shape) }));

const device = openDevice(traffic);
const slots = openPages(shape.tokens);
const tokens = conversation(500);
for (const turn of ['first', 'second']) {
  const chain = await traffic.lookup(tokens);
  const room = layout.blocksFor(tokens.length) * layout.blockTokens;
  const blockTable = Uint32Array.from(slots.take(room)); // a slot a token, in any order
  await traffic.load({ chain, geometry, blockTable }).done;
  await device.prefill({ tokens, cached: chain.hitTokens, geometry, blockTable });
  const firstBlock = chain.hitBlocks;
  const rest = blockTable.subarray(firstBlock * layout.blockTokens);
  const save = { chain, geometry, firstBlock, blocks: chain.blocks - firstBlock, blockTable: rest };
  await traffic.save(save).done;
  console.log(`${turn} request: ${chain.hitTokens} of ${tokens.length} tokens from the store`);
  chain.release();
  slots.giveBack([...blockTable]);
}
device.close();
await traffic.close();
console.log(device.report);
process.exitCode = device.wrongBytes === 0 ? 0 : 1;
