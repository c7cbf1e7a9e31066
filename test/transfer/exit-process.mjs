/** Ends in the midst of transfers of its own and of a worker's: node exit-process.mjs DIRECTORY HOW */
import { once } from 'node:events';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { Arena, Runtime, TransferEngine } from '../../dist/index.js';

const [, , directory, how] = process.argv;
const engine = new TransferEngine({ name: 'main', runtime: new Runtime() });
const arena = new Arena({ name: 'main', bytes: 16 * 4096, lock: 'none' });
const layers = [0, 2048].map((offsetBytes) => ({
  offsetBytes,
  planes: [{ offsetBytes: 0, bytesPerToken: 128 }],
}));
engine.addGeometry({
  ...{ arena: arena.handle, offsetBytes: 0, slotStrideBytes: 4096, slots: 16, blockTokens: 16, layers },
});
const worker = new Worker(new URL('./engine-worker.mjs', import.meta.url), {
  workerData: { role: 'busy', name: 'worker', peer: 'main', path: join(directory, 'store') },
});
await once(worker, 'message');
const forEver = engine.takeCounters(1);
void engine.submit([{ op: 'nop', waits: [{ counter: forEver, value: 1 }] }]).done;
void engine.submit([{ op: 'nop', steps: 60_000, event: true }], () => undefined).done;
setTimeout(() => {
  if (how === 'throw') throw new Error('nobody catches this');
  if (how === 'reject') void Promise.reject(new Error('nobody awaits this'));
  else process.exit(7);
}, 30);
