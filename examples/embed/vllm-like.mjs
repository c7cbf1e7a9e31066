#!/usr/bin/env node
/**
 * An engine with paged memory as vLLM has it, from its start to its shutdown (docs/embedding.md explains each step):
 *
 *   npm run build && node examples/embed/vllm-like.mjs
 */
import { readdirSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import {
  BlockStore,
  blockLayout,
  engineGeometry,
  LoadError,
  Region,
  TrafficManager,
  vllmAttention,
} from 'dualpath';
import { conversation, openDevice, openPages, scratchStore } from './device.mjs';

// The model: 4 layers of K and V, 8 KV heads of 64 values of 2 bytes.
const [layers, heads, headSize, elementBytes] = [4, 8, 64, 2];
const rowBytes = heads * headSize * elementBytes;
const model = {
  name: 'example-gqa',
  revision: '1', // of the weights: KV of two revisions is never mixed
  dtype: 'bfloat16',
  layers,
  groups: [
    {
      name: 'kv',
      layers: [0, 1, 2, 3],
      planes: [
        { name: 'k', bytesPerToken: rowBytes },
        { name: 'v', bytesPerToken: rowBytes },
      ],
      windowTokens: 0, // full attention
      sharding: 'sharded',
      kvHeads: heads,
    },
  ],
};

// A block of the store is 64 tokens, four pages of the engine's.
const layout = blockLayout(model, { blockTokens: 64 });
const storePath = scratchStore();
const store = BlockStore.open({ path: storePath, layout });
const traffic = new TrafficManager({ name: 'engine-0', layout, store, bufferBlocks: 32 });

// The engine's memory: for each layer a tensor [2, blocks, blockSize, heads, headSize].
const shape = { blocks: 512, blockSize: 16, heads, headSize, elementBytes };
const tensorBytes = 2 * shape.blocks * shape.blockSize * rowBytes;
const memory = new SharedArrayBuffer(layers * tensorBytes);
const region = Region.ofBuffer({ name: 'kv', emulatedHbm: true }, memory);
const tensors = Array.from({ length: layers }, (_, l) => ({ memory: region, offsetBytes: l * tensorBytes }));
const kv = vllmAttention(tensors, shape, 'kv-first', process.argv[2] ?? 'NHD');
const geometry = traffic.adopt(engineGeometry(layout, { kv }));

const device = openDevice(traffic);
const pages = openPages(shape.blocks);

/** Loads what the engine has not computed itself; returns how many tokens of KV are there then. */
async function loadPrefix({ tokens, chain, computed, blockTable, layerCounter }) {
  const { blockTokens } = layout;
  // At least one token must be computed for there to be logits.
  const tokenEnd = Math.min(chain.storedBlocks * blockTokens, tokens.length - 1);
  if (tokenEnd <= computed) return { loaded: computed };
  const firstBlock = Math.floor(computed / blockTokens);
  const load = traffic.load({
    ...{ chain, geometry, firstBlock, tokenBegin: computed, tokenEnd, layerCounter },
    blocks: Math.ceil(tokenEnd / blockTokens) - firstBlock,
    // Pages from the one on that holds the first token of the first block.
    blockTable: blockTable.subarray((firstBlock * blockTokens) / shape.blockSize),
    deadlineMs: 5_000,
  });
  return { loaded: tokenEnd, load };
}

/** A prompt of which the engine's own prefix cache has the first `computed` tokens, in the first of these pages. */
async function prefill(tokens, { computed = 0, cachedPages = [] } = {}) {
  const chain = await traffic.lookup(tokens, { deadlineMs: 1_000 });
  const needed = Math.ceil(layout.blocksFor(tokens.length) * (layout.blockTokens / shape.blockSize));
  const blockTable = Int32Array.from([...cachedPages, ...pages.take(needed - cachedPages.length)]);
  const layerCounter = traffic.engine.takeCounters(1);
  const { loaded, load } = await loadPrefix({ tokens, chain, computed, blockTable, layerCounter });
  let cached = loaded;
  try {
    if (load !== undefined) {
      await load.layer(0); // or let the device wait for the counter: see examples/base-level.mjs
      await load.done;
    }
  } catch (error) {
    if (!(error instanceof LoadError)) throw error;
    cached = error.failedFromToken; // what came before it is there; the rest is computed
    console.log(`  ${error.code}: recomputing tokens ${error.failedFromToken} to ${error.failedToToken}`);
  }
  await device.prefill({ tokens, cached, geometry, blockTable });

  // Full blocks are saved; the last, partial one when it has been filled.
  const firstBlock = Math.floor(cached / layout.blockTokens);
  const save = traffic.save({
    ...{ chain, geometry, firstBlock, blocks: chain.blocks - firstBlock },
    blockTable: blockTable.subarray((firstBlock * layout.blockTokens) / shape.blockSize),
  });
  await save.done; // from now on every look-up on this host finds them
  chain.release();
  traffic.engine.counters.giveBack(layerCounter, 1);
  return { cached, blockTable };
}

const prompt = conversation(1000);
const first = await prefill(prompt);
console.log(`first request: ${first.cached} of 1000 tokens from the store`);
const second = await prefill(prompt);
console.log(`the same prompt again: ${second.cached} of 1000 tokens from the store`);
pages.giveBack([...first.blockTable]);

// The engine still has the first 80 tokens, five pages of 16: only the others are loaded.
const cachedPages = second.blockTable.slice(0, 5);
const third = await prefill(conversation(1000), { computed: 80, cachedPages });
console.log(`with 80 tokens in the engine's own cache: ${third.cached - 80} more from the store`);

// A disk may lose a block: the load says from where on to compute, and the save heals it.
const blocksDirectory = join(storePath, 'blocks');
const [bucket] = readdirSync(blocksDirectory).filter(
  (name) => readdirSync(join(blocksDirectory, name)).length > 0,
);
truncateSync(join(blocksDirectory, bucket, readdirSync(join(blocksDirectory, bucket))[0]), 100);
await prefill(prompt);
const healed = await prefill(prompt);
console.log(`after that: ${healed.cached} of 1000 tokens from the store`);

device.close();
await traffic.close(); // ends what is in flight; from now on the memory is the engine's alone
console.log(device.report);
process.exitCode = device.wrongBytes === 0 ? 0 : 1;
