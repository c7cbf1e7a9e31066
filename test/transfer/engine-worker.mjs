/**
 * An engine in a worker thread, with a runtime of its own. Talks over `port`; roles:
 * 'exchange': sends its blocks to the other worker's memory, waits for the other's, checks them.
 * 'busy': sends to `peer` without end and hashes and saves and loads meanwhile, runs kernels and offers a door to
 *   other processes at `path`.<name>, until it is terminated.
 */
import { parentPort, workerData } from 'node:worker_threads';
import {
  Arena,
  BlockStore,
  EmulatedGpu,
  blockLayout,
  presets,
  Runtime,
  sequenceGeometry,
  TrafficManager,
  TransferEngine,
} from '../../dist/index.js';

const { role, name, peer, path, port, seed } = workerData;
const slots = 16;
const blockBytes = 4096;

function openMemory(engine) {
  const arena = new Arena({ name, bytes: slots * blockBytes, hugePages: false, lock: 'none' });
  const layers = [0, 1].map((layer) => ({
    offsetBytes: (layer * blockBytes) / 2,
    planes: [{ offsetBytes: 0, bytesPerToken: 128 }],
  }));
  const geometry = engine.addGeometry({
    ...{ arena: arena.handle, offsetBytes: 0, slotStrideBytes: blockBytes, slots, blockTokens: 16, layers },
  });
  engine.setSlots(
    0,
    Array.from({ length: slots }, (_, i) => (i * 5) % slots),
  );
  return { bytes: new Uint8Array(arena.buffer), geometry };
}

const send = (to, geometry, counter) => ({
  op: 'send',
  peer: to,
  from: 0,
  to: geometry,
  fromSlots: 0,
  toSlots: 8,
  blocks: 8,
  firstBlock: 0,
  tokenBegin: 0,
  tokenEnd: 128,
  layers: 2,
  signals: [{ counter, value: 1, remote: true }],
});

const answer = () => new Promise((resolve) => port.once('message', resolve));

/** Slots list[0..8) are mine to send, list[8..16) the other's to write. */
async function exchange() {
  const engine = new TransferEngine({ name, runtime: new Runtime() });
  const { bytes, geometry } = openMemory(engine);
  bytes.fill(seed);
  const arrived = engine.takeCounters(1);
  const other = answer();
  port.postMessage({ name, geometry, arrived, seed });
  const { name: to, geometry: toGeometry, arrived: toCounter, seed: theirs } = await other;
  const rounds = 50;
  const all = engine.submit([{ op: 'nop', waits: [{ counter: arrived, value: 2 * rounds }] }]).done;
  const handle = engine.connect(to);
  for (let i = 0; i < rounds; i++) await engine.submit([send(handle, toGeometry, toCounter)]).done;
  await all;
  const mine = bytes.reduce((count, byte) => count + (byte === seed), 0);
  const got = bytes.reduce((count, byte) => count + (byte === theirs), 0);
  const done = answer();
  port.postMessage('done');
  await done; // the other may still send to me
  await engine.close();
  engine.runtime.close();
  port.close();
  parentPort.postMessage({ mine, got });
}

async function busy() {
  const runtime = new Runtime();
  const layout = blockLayout(
    presets.find((model) => model.name === 'demo'),
    { blockTokens: 16 },
  );
  const store = BlockStore.open({ path, layout });
  const manager = new TrafficManager({ name, layout, store, bufferBlocks: 8, maxTokens: 4096, runtime });
  const memory = manager.adopt(sequenceGeometry(layout, 8, 'hbm'));
  const { engine } = manager;
  const engineMemory = new TransferEngine({ name: `${name}/memory`, runtime });
  openMemory(engineMemory);
  const arrived = engineMemory.takeCounters(1);
  const handle = engineMemory.connect(peer);
  const shared = new TransferEngine({ name: `${name}/shared`, runtime, shared: true });
  shared.shareDoor({ path: `${path}.${name}` });
  const gpu = new EmulatedGpu(engine);
  const tokens = new Uint32Array(4096);
  const blockTable = [0, 1, 2, 3, 4, 5, 6, 7];
  const forEver = async (step) => {
    for (;;) await step();
  };
  const loops = [
    () => engineMemory.submit([send(handle, 0, 0)]).done,
    async () => (await manager.lookup(tokens)).release(),
    async () => {
      tokens[0]++;
      const chain = await manager.hash(tokens.slice(0, 129));
      await manager.save({ chain, firstBlock: 0, blocks: 8, geometry: memory, blockTable }).done;
      await manager.load({ chain, blocks: 8, geometry: memory, blockTable }).done;
      chain.release();
    },
    () => engine.submit([{ op: 'nop', steps: 100, event: true }], () => undefined).done,
    () => gpu.run({ steps: 10, stepDurationS: 20e-6 }),
  ].map(forEver);
  parentPort.postMessage({ arrived });
  await Promise.all(loops);
}

await (role === 'exchange' ? exchange() : busy());
