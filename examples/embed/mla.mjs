#!/usr/bin/env node
/**
 * An engine with sparse MLA as DeepSeek-V3.2 has it: latents and indexer keys, two groups of KV with pages of their
 * own, in memory that another process shares by a file descriptor. Two ranks hold the same bytes: they are stored once.
 *
 *   npm run build && node examples/embed/mla.mjs
 */
import { closeSync, ftruncateSync, openSync, unlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  BlockStore,
  blockLayout,
  engineGeometry,
  indexerKeys,
  mlaLatent,
  Region,
  ShardedTraffic,
  TrafficManager,
} from 'dualpath';
import { conversation, openDevice, openPages, scratchStore } from './device.mjs';

const layers = 3;
const replicated = (name, plane) => ({
  ...{ name, layers: [0, 1, 2], planes: [plane], windowTokens: 0 },
  sharding: 'replicated', // every rank holds all of it
});
const model = {
  ...{ name: 'example-sparse-mla', revision: '1', dtype: 'fp8_ds_mla', layers },
  groups: [
    replicated('mla', { name: 'latent', bytesPerToken: 656 }),
    replicated('indexer', { name: 'k', bytesPerToken: 132 }),
  ],
};
const layout = blockLayout(model, { blockTokens: 64 });
const store = BlockStore.open({ path: scratchStore(), layout }); // one store for all ranks

/** Memory as a worker in another process shares it: a memfd, a shared memory object, or as here a file. */
function openSharedMemory(name, bytes) {
  const path = join(tmpdir(), `dualpath-embed-${process.pid}-${name}`);
  const fd = openSync(path, 'wx+');
  unlinkSync(path);
  ftruncateSync(fd, bytes);
  return fd;
}

const blocks = 64;
const page = { blocks, blockSize: 64 };
function openRank(rank) {
  const traffic = new TrafficManager({ name: `rank-${rank}`, layout, store, bufferBlocks: 16 });
  const latentBytes = blocks * 64 * 656;
  const indexerBytes = blocks * 64 * 132;
  const bytes = layers * (latentBytes + indexerBytes);
  const fd = openSharedMemory(traffic.name, bytes);
  const memory = Region.ofFile({ name: traffic.name, fd, offsetBytes: 0, bytes, emulatedHbm: true });
  closeSync(fd); // the mapping stays
  const at = (offsetBytes) => ({ memory, offsetBytes });
  const each = Array.from({ length: layers }, (_, layer) => layer);
  const mla = mlaLatent(
    each.map((layer) => at(layer * latentBytes)),
    { ...page, bytesPerToken: 656 },
  );
  const indexer = indexerKeys(
    each.map((layer) => at(layers * latentBytes + layer * indexerBytes)),
    { ...page, valueBytes: 128, scaleBytes: 4 },
  );
  const geometry = traffic.adopt(engineGeometry(layout, { mla, indexer }));
  const pools = { mla: openPages(blocks), indexer: openPages(blocks) };
  return { traffic, geometry, pools, device: openDevice(traffic) };
}

const ranks = [openRank(0), openRank(1)];
const sharded = new ShardedTraffic(ranks.map(({ traffic }) => traffic));
const tokens = conversation(1500);

for (const turn of ['first', 'second']) {
  const lookup = await sharded.lookup(tokens, { deadlineMs: 1_000 }); // what every rank has
  const needed = layout.blocksFor(tokens.length);
  const places = ranks.map(({ geometry, pools }) => ({
    geometry,
    // Each group has a block table of its own.
    blockTable: { mla: pools.mla.take(needed), indexer: pools.indexer.take(needed) },
  }));
  await sharded.load(lookup, places, { deadlineMs: 5_000 }).done;
  await Promise.all(
    ranks.map(({ device }, i) => device.prefill({ tokens, cached: lookup.hitTokens, ...places[i] })),
  );
  const firstBlock = lookup.hitBlocks;
  const skip = (pages) => pages.slice(firstBlock); // pages and blocks both have 64 tokens here
  const rest = places.map(({ geometry, blockTable: { mla, indexer } }) => ({
    geometry,
    blockTable: { mla: skip(mla), indexer: skip(indexer) },
  }));
  const saved = await sharded.save(lookup, rest, {
    firstBlock,
    blocks: lookup.chains[0].blocks - firstBlock,
  });
  console.log(
    `${turn} request: ${lookup.hitTokens} of ${tokens.length} tokens from the store, ` +
      `saved by rank: ${saved.map(({ blocks }) => blocks).join(' + ')} blocks`,
  );
  lookup.release();
  ranks.forEach(({ pools }, i) => {
    pools.mla.giveBack(places[i].blockTable.mla);
    pools.indexer.giveBack(places[i].blockTable.indexer);
  });
}
for (const { device, traffic } of ranks) {
  device.close();
  await traffic.close();
  console.log(`${traffic.name}: ${device.report}`);
  if (device.wrongBytes > 0) process.exitCode = 1;
}
