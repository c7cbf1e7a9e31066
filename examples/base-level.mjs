#!/usr/bin/env node
/**
 * The base level, as the author of an inference engine would use it: an engine with its own scheduler and its own
 * paged KV memory embeds a TrafficManager, which finds, loads and saves KV-Cache and nothing else.
 *
 *   npm run build && node examples/base-level.mjs [STORE_DIRECTORY]
 *
 * Two turns of a conversation. The first computes its whole prompt and saves it; the second finds those blocks
 * in the store and computes layer l while layer l + 1 is on its way. An emulated GPU stands for the device: it
 * takes modelled time, writes KV and checks, byte by byte, the KV that it reads.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Arena, BlockStore, blockLayout, EmulatedGpu, KvSeeds, loadModel, TrafficManager } from 'dualpath';

const scratch = process.argv[2] === undefined ? mkdtempSync(join(tmpdir(), 'dualpath-example-')) : undefined;

// What a block of KV-Cache is: the model's layers and planes, so many tokens at a time.
const layout = blockLayout(loadModel('demo'), { blockTokens: 64 });
const store = BlockStore.open({ path: process.argv[2] ?? join(scratch, 'store'), layout });
const traffic = new TrafficManager({ name: 'engine-0', layout, store, bufferBlocks: 64 });

/**
 * The engine's own memory, here as vLLM lays it out: for each layer a tensor [blocks, tokens, planes]. Any base
 * and any strides will do: no layout is converted on the way.
 */
function openPagedMemory(slots) {
  const { blockTokens, layers } = layout;
  const rowBytes = (layer) => layout.planesOf(layer).reduce((sum, plane) => sum + plane.bytesPerToken, 0);
  const slotStrideBytes = layout.maxLayerBlockBytes;
  const arena = new Arena({ name: 'kv', bytes: layers * slots * slotStrideBytes, emulatedHbm: true });
  return traffic.adopt({
    arena: arena.handle,
    offsetBytes: 0,
    slotStrideBytes,
    slots,
    blockTokens,
    layers: Array.from({ length: layers }, (_, layer) => ({
      offsetBytes: layer * slots * slotStrideBytes,
      planes: layout.planesOf(layer).map(({ bytesPerToken, offsetBytes, windowTokens }) => ({
        offsetBytes: offsetBytes / blockTokens, // within a token's row
        bytesPerToken,
        tokenStrideBytes: rowBytes(layer),
        windowTokens,
      })),
    })),
  });
}

const geometry = openPagedMemory(256);
const gpu = new EmulatedGpu(traffic.engine);
// The engine's page allocator: blocks lie wherever there was room.
const freeSlots = Array.from({ length: 256 }, (_, i) => (i * 101) % 256);

/** One turn: what is stored is loaded, the rest computed, and what is new and full saved. */
async function turn(tokens) {
  const { engine } = traffic;
  const started = performance.now();
  const blocks = layout.blocksFor(tokens.length);
  const blockTable = freeSlots.splice(0, blocks);
  const chain = await traffic.lookup(tokens); // always leaves a token to compute
  const cached = chain.hitTokens;

  // The device waits for this counter itself: layer l is computed as soon as layer l has arrived.
  const layersArrived = engine.takeCounters(1);
  const load = traffic.load({ chain, geometry, blockTable, layerCounter: layersArrived });
  const list = engine.slotTable.take(blocks);
  engine.setSlots(list, blockTable);
  const prefill = gpu.run({
    steps: layout.layers,
    stepDurationS: 50e-6 + (tokens.length - cached) * 2e-6, // what a real one would take
    waits: cached === 0 ? [] : [{ counter: layersArrived, value: 1, valueStep: 1 }],
    bodies: [
      {
        ...{ geometry, list, count: blocks, firstBlock: 0, seeds: new KvSeeds(tokens) },
        ...{ checkBegin: 0, checkEnd: cached, windowEnd: cached }, // what attention reads
        ...{ writeBegin: cached, writeEnd: tokens.length }, // what it computes
      },
    ],
  });
  // A load that fails rejects with a LoadError, which says from which block on to compute anew.
  await Promise.all([load.done, prefill]);
  const firstTokenMs = performance.now() - started;

  const firstBlock = chain.hitBlocks;
  const save = traffic.save({
    chain,
    firstBlock,
    blocks: chain.blocks - firstBlock,
    geometry,
    blockTable: blockTable.slice(firstBlock),
  });
  await save.done; // published: from now on every look-up finds them
  chain.release();
  engine.slotTable.giveBack(list, blocks);
  engine.counters.giveBack(layersArrived, 1);
  freeSlots.push(...blockTable); // nothing in flight refers to them any more
  return { cached, firstTokenMs, saved: chain.blocks - firstBlock };
}

const conversation = Uint32Array.from({ length: 4000 }, (_, i) => Math.imul(i, 2654435761) >>> 8);
try {
  for (const [name, length] of [
    ['turn 1', 3000],
    ['turn 2', 4000],
  ]) {
    const { cached, firstTokenMs, saved } = await turn(conversation.subarray(0, length));
    console.log(
      `${name}: ${length} tokens, ${cached} from the store, ${length - cached} computed, ` +
        `first token after ${firstTokenMs.toFixed(1)} ms, ${saved} new blocks saved`,
    );
  }
  const { checkedBytes, mismatchedBytes } = gpu.statistics();
  console.log(`KV read by attention: ${checkedBytes} bytes checked, ${mismatchedBytes} wrong (emulated GPU)`);
  process.exitCode = mismatchedBytes === 0 ? 0 : 1;
} finally {
  gpu.close();
  await traffic.close();
  if (scratch !== undefined) rmSync(scratch, { recursive: true });
}
