/** Uses up the process's open files, and goes on: node open-files-process.mjs DIRECTORY. Prints what happened. */
import { closeSync, openSync } from 'node:fs';
import { join } from 'node:path';
import {
  BlockStore,
  blockLayout,
  presets,
  Runtime,
  sequenceGeometry,
  TrafficManager,
} from '../../dist/index.js';

const blocks = 4;
const layout = blockLayout(
  presets.find((model) => model.name === 'demo'),
  { blockTokens: 16 },
);
const path = join(process.argv[2], 'store');
const runtime = new Runtime();
const manager = new TrafficManager({
  ...{
    name: 'few-files',
    layout,
    store: BlockStore.open({ path, layout }),
    bufferBlocks: 2 * blocks,
    runtime,
  },
});
const geometry = manager.adopt(sequenceGeometry(layout, blocks, 'memory'));
const blockTable = Array.from({ length: blocks }, (_, i) => i);

async function outcome(what) {
  try {
    await what();
    return 'done';
  } catch (error) {
    return `${error.code} ${error.details?.errno} ${error.message}`;
  }
}

async function save(n) {
  const chain = await manager.hash(new Uint32Array(blocks * 16 + 1).fill(n));
  await manager.save({ chain, firstBlock: 0, blocks, geometry, blockTable }).done;
  chain.release();
}

async function load(n) {
  const chain = await manager.lookup(new Uint32Array(blocks * 16 + 1).fill(n));
  const result = await manager.load({ chain, geometry, blockTable }).done;
  if (result.blocks !== blocks) throw new Error(`${result.blocks} blocks`);
  chain.release();
}

await save(1);
await load(1);
const taken = [];
try {
  for (;;) taken.push(openSync('/dev/null'));
} catch (error) {
  if (error.code !== 'EMFILE') throw error;
}
const report = {
  open: await outcome(async () => BlockStore.open({ path, layout })),
  save: await outcome(() => save(2)),
  load: await outcome(() => load(1)),
};
for (const fd of taken) closeSync(fd);
report.after = await outcome(async () => {
  await save(2);
  await save(3);
  for (const n of [1, 2, 3]) await load(n);
  BlockStore.open({ path, layout });
});
process.stdout.write(JSON.stringify(report));
await manager.close();
runtime.close();
