/**
 * Terminates workers in the midst of transfers: node terminations.mjs [--rounds 1] [--terminations 30]
 *
 * Each worker saves and loads, hashes, runs kernels, offers its door and sends to this thread's engine, which sends
 * back. After each round no native object of a worker's may be left and this process must still work. Prints JSON;
 * an abort, a sanitizer's report or something left ends it with another status than 0.
 */
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { Worker } from 'node:worker_threads';
import { Arena, Runtime, TransferEngine } from '../../dist/index.js';

const addon = createRequire(import.meta.url)('../../build/Release/dualpath.node');
const { values } = parseArgs({
  options: { rounds: { type: 'string', default: '1' }, terminations: { type: 'string', default: '30' } },
});
const rounds = Number(values.rounds);
const terminations = Number(values.terminations);
if (!(rounds >= 1) || !(terminations >= 1)) {
  console.error(
    `--rounds ${values.rounds} --terminations ${values.terminations}: at least 1 of each is needed`,
  );
  process.exit(2);
}

const blockBytes = 4096;

/** Memory of the shape that engine-worker.mjs has. */
function openEngine() {
  const engine = new TransferEngine({ name: 'main', runtime: new Runtime() });
  const arena = new Arena({ name: 'main', bytes: 16 * blockBytes, hugePages: false, lock: 'none' });
  const layers = [0, blockBytes / 2].map((offsetBytes) => ({
    offsetBytes,
    planes: [{ offsetBytes: 0, bytesPerToken: 128 }],
  }));
  engine.addGeometry({
    ...{ arena: arena.handle, offsetBytes: 0, slotStrideBytes: blockBytes },
    ...{ slots: 16, blockTokens: 16, layers },
  });
  engine.setSlots(
    0,
    Array.from({ length: 16 }, (_, i) => i),
  );
  return engine;
}

/** Sends to the worker until it has gone: each program has its end. */
async function send(engine, peer, counter) {
  const descriptor = {
    ...{ op: 'send', peer, from: 0, to: 0, fromSlots: 0, toSlots: 0, blocks: 16, firstBlock: 0 },
    ...{ tokenBegin: 0, tokenEnd: 256, layers: 2, signals: [{ counter, value: 1, remote: true }] },
  };
  for (;;) {
    const code = await engine.submit([descriptor, descriptor]).done.then(
      () => undefined,
      (error) => error.code,
    );
    if (code !== undefined) return code;
  }
}

async function terminate(engine, path, after_ms, ends) {
  const name = 'worker'; // the same each time: the name is free when the worker has gone
  const worker = new Worker(new URL('engine-worker.mjs', import.meta.url), {
    workerData: { role: 'busy', name, peer: 'main', path },
  });
  const failed = new Promise((_, reject) => worker.once('error', reject));
  const [{ arrived }] = await Promise.race([once(worker, 'message'), failed]);
  const sending = send(engine, engine.connect(`${name}/memory`), arrived);
  await sleep(after_ms);
  await worker.terminate();
  const end = await sending;
  ends[end] = (ends[end] ?? 0) + 1;
  if (existsSync(`${path}.${name}`)) throw new Error(`its door's socket is left`);
}

const fds = () => readdirSync('/proc/self/fd').length;
const liveNow = () => ({ ...addon.liveObjects(), fds: fds() });
const differs = (a, b) => Object.keys(a).filter((key) => a[key] !== b[key]);

const scratch = mkdtempSync(join(tmpdir(), 'dualpath-terminations-'));
const ends = {};
let left = {};
try {
  const engine = openEngine();
  const path = join(scratch, 'store');
  await terminate(engine, path, 5, {}); // whatever is made once for all is made now
  const before = liveNow();
  for (let round = 0; round < rounds; round++) {
    for (let i = 0; i < terminations; i++) await terminate(engine, path, i % 7, ends);
    // What a thread leaves to libuv or the kernel may come a moment later.
    for (let wait = 0; wait < 500 && differs(before, liveNow()).length > 0; wait++) await sleep(10);
    const now = liveNow();
    left = Object.fromEntries(differs(before, now).map((key) => [key, now[key] - before[key]]));
    console.error(`round ${round + 1} of ${rounds}: ${JSON.stringify(now)}`);
    if (Object.keys(left).length > 0) break;
  }
  await engine.submit([{ op: 'nop' }]).done;
  await engine.close();
  engine.runtime.close();
} finally {
  rmSync(scratch, { recursive: true, force: true });
}
const passed = Object.keys(left).length === 0 && ends.PEER_LOST === rounds * terminations;
console.log(JSON.stringify({ rounds, terminations, ends, left, passed }));
process.exitCode = passed ? 0 : 1;
