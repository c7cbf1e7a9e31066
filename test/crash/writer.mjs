/**
 * Saves sequences without end, three at a time, until somebody kills it: node writer.mjs OPTIONS_JSON
 * {path, seed, first, capacityBytes?, gc?, durable?}, with gc collecting meanwhile. Writes a line to stdout before it opens the store ('opening'),
 * once it is open ('open'), and for what has been acknowledged: 'N BLOCKS', the leading blocks of sequence N.
 */
import { writeSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { BlockStore, Runtime, sequenceGeometry, StoreAdmin, TrafficManager } from '../../dist/index.js';
import { blocksOf, fillBlock, layout, mostBlocks, tokensOf } from './sequences.mjs';

const { path, seed, first, capacityBytes, gc = false, durable = false } = JSON.parse(process.argv[2]);
const say = (line) => writeSync(1, `${line}\n`);
const writers = 3;

say('opening');
const store = BlockStore.open({ path, layout, ...(capacityBytes === undefined ? {} : { capacityBytes }) });
const manager = new TrafficManager({
  ...{ name: 'writer', layout, store, bufferBlocks: 2 * mostBlocks, durable, runtime: new Runtime() },
});
say('open');

const memory = sequenceGeometry(layout, writers * mostBlocks, 'memory');
const geometry = manager.adopt(memory);
const words = new Uint32Array(memory.arena.buffer());
const blockWords = layout.fullBlockBytes / 4;

async function save(writer, n) {
  const blocks = blocksOf(seed, n);
  const slot = (block) => writer * mostBlocks + block;
  for (let block = 0; block < blocks; block++) {
    fillBlock(words.subarray(slot(block) * blockWords, (slot(block) + 1) * blockWords), seed, n, block);
  }
  const chain = await manager.hash(tokensOf(seed, n));
  // In two parts, as a prompt and what is generated after it are.
  const cut = 1 + (n % (blocks - 1));
  for (const [from, to] of [
    [0, cut],
    [cut, blocks],
  ]) {
    const blockTable = Array.from({ length: to - from }, (_, i) => slot(from + i));
    await manager.save({ chain, firstBlock: from, blocks: to - from, geometry, blockTable }).done;
    say(`${n} ${to}`);
  }
  chain.release();
}

async function collect() {
  const admin = StoreAdmin.open(path);
  for (;;) {
    await admin.gc({ capacityBytes: Math.floor(0.8 * capacityBytes) });
    await sleep(10);
  }
}

if (gc) void collect();
let next = first;
await Promise.all(
  Array.from({ length: writers }, async (_, writer) => {
    for (;;) await save(writer, next++);
  }),
);
