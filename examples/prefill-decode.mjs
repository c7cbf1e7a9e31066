/**
 * One prefill engine, one decode engine, one session of three turns, on emulated GPUs:
 *
 *   node examples/prefill-decode.mjs [split | shorter-queue | prefill]
 *
 * A real engine replaces what is marked "device": it computes where this example launches emulated kernels,
 * which write a pattern as KV, and check every byte of the KV that they are given.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  BlockStore,
  blockLayout,
  DecodeEngine,
  EmulatedGpu,
  KvSeeds,
  LinearTimeModel,
  loadModel,
  LocalControl,
  LocalScheduler,
  PrefillEngine,
  TrafficManager,
} from '../dist/index.js';

const policy = process.argv[2] ?? 'split'; // which side reads hits from storage: here both at once
const blockTokens = 64;
const blocks = 128; // of each buffer and each HBM
const layout = blockLayout(loadModel('demo'), { blockTokens });
const directory = mkdtempSync(join(tmpdir(), 'dualpath-example-'));
const store = BlockStore.open({ path: join(directory, 'store'), layout });

// The scheduler knows what each engine holds and admits requests whole: engines, read side, every block.
const engineOf = (role) => ({
  engine: role,
  node: `${role}-node`,
  group: role,
  role,
  bufferBlocks: blocks,
  hbmBlocks: role === 'decode' ? blocks : 0, // a prefill engine's HBM is staging: it bounds batches instead
  readRateBytesPerS: 1e9,
});
const scheduler = new LocalScheduler(
  {
    engines: [engineOf('prefill'), engineOf('decode')],
    policy,
    blockTokens,
    blockBytes: store.file.fileBytes,
    decodeSpareBlocks: 1,
    maxWaiting: 100,
    seed: 1,
  },
  // A request that fails ends: at its engines, and for whoever waits for it.
  ({ request, error, assignment }) => {
    for (const engine of [prefill, decode]) engine.cancel(request, error, assignment?.epoch);
    turns.get(request)?.failed(error);
  },
);

// Both engines ask here for the tokens of a request that they have been assigned.
const turns = new Map();
const prompts = {
  prompt: (request) => turns.get(request).prompt,
  maxNewTokens: (request) => turns.get(request).reply.length,
};

// Each engine has its own traffic manager: a buffer in host memory, the store, its peers.
const control = new LocalControl();
const common = (name) => ({
  traffic: new TrafficManager({ name, layout, store, bufferBlocks: blocks }),
  scheduler,
  group: name,
  control,
  prompts,
});
const timeModel = new LinearTimeModel({
  baseS: 0.001,
  perNewTokenS: 2e-6,
  perAttentionTokenS: 1e-6,
  perAttentionPairS: 0,
});
const prefill = new PrefillEngine({ ...common('prefill'), stagingBlocks: blocks, timeModel, quotaS: 0.3 });
const decode = new DecodeEngine({ ...common('decode'), hbmBlocks: blocks });
const gpus = {
  prefill: new EmulatedGpu(prefill.traffic.engine),
  decode: new EmulatedGpu(decode.traffic.engine),
};

/** Forward batches: their KV comes and goes layer by layer while the device computes. */
async function runPrefill() {
  for await (const batch of prefill.batches()) {
    const { computed, layers } = batch.counters;
    // Device: kernel l waits until layer l's hit KV is in the staging, computes, raises `computed` to l + 1.
    // An engine that computes from JavaScript uses batch.layers() instead.
    const launch = gpus.prefill.launch({
      steps: layers,
      stepDurationS: batch.totalS / layers,
      waits: batch.deviceWaits,
      signals: [{ counter: computed, value: 0, ordered: true }],
      bodies: batch.entries.map(({ request, cachedTokens, newTokens, staging }) => ({
        geometry: prefill.staging.geometry,
        list: staging.offset, // block i of the sequence is in slot list[i]
        count: staging.count,
        firstBlock: 0,
        seeds: new KvSeeds(request.tokens.subarray(0, cachedTokens + newTokens)),
        checkBegin: 0,
        checkEnd: cachedTokens,
        writeBegin: cachedTokens,
        writeEnd: cachedTokens + newTokens,
        windowEnd: cachedTokens,
      })),
    });
    // A batch that is given up (a peer was lost) stops its device; the staging stays until that is through.
    batch.signal.addEventListener('abort', () => gpus.prefill.cancel(launch), { once: true });
    const end = [{ counter: computed, value: layers }];
    batch.holdUntil(prefill.traffic.engine.submit([{ op: 'bump', waits: end }]).done);
  }
}

/** Sequences whose whole prompt KV is in DE HBM: generates the reply; full blocks are stored on the way. */
async function runDecode() {
  for await (const sequence of decode.sequences()) {
    const { promptTokens } = sequence;
    const { reply, ended } = turns.get(sequence.request);
    const whole = Uint32Array.of(...sequence.tokens, ...reply);
    const end = whole.length - 1; // the first token came with the prefill, the last one's KV is not computed
    await gpus.decode.run({
      allLayers: true,
      stepDurationS: 0.001,
      bodies: [
        {
          geometry: decode.hbm.geometry,
          list: sequence.hbmOffset,
          count: sequence.hbmCount,
          firstBlock: 0,
          seeds: new KvSeeds(whole),
          checkBegin: 0,
          checkEnd: promptTokens,
          writeBegin: promptTokens,
          writeEnd: end,
          windowEnd: promptTokens,
        },
      ],
    });
    sequence.append(whole.subarray(promptTokens, end));
    ended(await sequence.finish());
  }
}

const devices = [runPrefill(), runDecode()];
const readBlocks = ({ traffic }) => traffic.engine.statistics().readBlocks;
let conversation = new Uint32Array();
for (let turn = 0; turn < 3; turn++) {
  const newTokens = (count, first) => Uint32Array.from({ length: count }, (_, i) => 1000 * first + i);
  const prompt = Uint32Array.of(...conversation, ...newTokens(500, 2 * turn));
  const reply = newTokens(200, 2 * turn + 1);
  const before = [readBlocks(prefill), readBlocks(decode)];
  const request = `turn ${turn}`;
  const over = new Promise((ended, failed) => {
    turns.set(request, { prompt, reply, ended, failed });
  });
  over.catch(() => undefined); // heard of below
  // A front end looks up how much of the prompt is stored and submits the request.
  const chain = await prefill.traffic.lookup(prompt);
  const { hitTokens } = chain;
  chain.release();
  await scheduler.submit({ request, promptTokens: prompt.length, hitTokens, maxNewTokens: reply.length });
  const result = await over;
  conversation = Uint32Array.of(...prompt, ...reply);
  const [byPrefill, byDecode] = [readBlocks(prefill) - before[0], readBlocks(decode) - before[1]];
  const mismatched = Object.values(gpus).reduce((sum, gpu) => sum + gpu.statistics().mismatchedBytes, 0);
  console.log(
    `turn ${turn}: ${prompt.length} prompt tokens, ${result.hitBlocks * blockTokens} from the store ` +
      `(${byPrefill} blocks read by the prefill side, ${byDecode} by the decode side), ` +
      `${result.storedBlocks} blocks stored, ${mismatched} bytes mismatched`,
  );
  if (mismatched > 0) process.exitCode = 1;
}

scheduler.close();
await Promise.all([prefill.close(), decode.close()]);
await Promise.all(devices);
for (const gpu of Object.values(gpus)) gpu.close();
rmSync(directory, { recursive: true });
