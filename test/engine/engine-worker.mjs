/**
 * One engine in a thread of its own, on the built package. With its peer it shares the loopback transport and
 * a MessagePort, nothing else; the scheduler is behind another port.
 */
import { parentPort, workerData } from 'node:worker_threads';
import * as dualpath from '../../dist/index.js';

const { role, name, peer, storePath, model, blockTokens, engineOptions, controlPort, schedulerPort } =
  workerData;

/** The scheduler's interface over a port. */
class SchedulerOverPort {
  #calls = new Map();
  #next = 0;

  constructor(onPrompt) {
    schedulerPort.on('message', ({ prompt, id, value, error }) => {
      if (prompt !== undefined) return onPrompt(prompt);
      const { resolve, reject } = this.#calls.get(id);
      this.#calls.delete(id);
      if (error === undefined) resolve(value);
      else reject(new dualpath.DualPathError(error.code, error.message));
    });
  }

  fetch(group, loads, signal) {
    const id = this.#next++;
    signal?.addEventListener('abort', () => schedulerPort.postMessage({ abort: id }), { once: true });
    return new Promise((resolve, reject) => {
      this.#calls.set(id, { resolve, reject });
      schedulerPort.postMessage({ id, group, loads });
    });
  }

  complete(...args) {
    schedulerPort.postMessage({ report: 'complete', args });
  }

  fail(request, { code, message }, admission) {
    schedulerPort.postMessage({ report: 'fail', args: [request, { code, message }, admission] });
  }
}

const turns = new Map();
const layout = dualpath.blockLayout(dualpath.loadModel(model), { blockTokens });
const store = dualpath.BlockStore.open({ path: storePath, layout });
const traffic = new dualpath.TrafficManager({ name, layout, store, bufferBlocks: 64, maxTokens: 4096 });
const gpu = new dualpath.EmulatedGpu(traffic.engine);
const control = new dualpath.LocalControl();
control.join(controlPort, [peer]);
const options = {
  traffic,
  scheduler: new SchedulerOverPort(({ request, ...turn }) => turns.set(request, turn)),
  group: name,
  control,
  prompts: {
    prompt: (request) => turns.get(request).tokens,
    maxNewTokens: (request) => turns.get(request).reply.length,
  },
};

async function prefill(engine) {
  for await (const batch of engine.batches()) {
    const { computed, layers } = batch.counters;
    gpu.launch({
      steps: layers,
      stepDurationS: 0,
      waits: batch.deviceWaits,
      signals: [{ counter: computed, value: 0, ordered: true }],
      bodies: batch.entries.map(({ request, cachedTokens, newTokens, staging }) => ({
        geometry: engine.staging.geometry,
        list: staging.offset,
        count: staging.count,
        firstBlock: 0,
        seeds: new dualpath.KvSeeds(request.tokens.subarray(0, cachedTokens + newTokens)),
        checkBegin: 0,
        checkEnd: cachedTokens,
        writeBegin: cachedTokens,
        writeEnd: cachedTokens + newTokens,
        windowEnd: cachedTokens,
      })),
    });
    const over = traffic.engine.submit([{ op: 'bump', waits: [{ counter: computed, value: layers }] }]);
    batch.holdUntil(over.done);
  }
}

async function decode(engine) {
  for await (const sequence of engine.sequences()) {
    const { promptTokens, request } = sequence;
    const { reply } = turns.get(request);
    const whole = new Uint32Array(promptTokens + reply.length);
    whole.set(sequence.tokens);
    whole.set(reply, promptTokens);
    const end = promptTokens + Math.max(reply.length - 1, 0);
    await gpu.run({
      allLayers: true,
      stepDurationS: 0,
      bodies: [
        {
          geometry: engine.hbm.geometry,
          list: sequence.hbmOffset,
          count: sequence.hbmCount,
          firstBlock: 0,
          seeds: new dualpath.KvSeeds(whole),
          checkBegin: 0,
          checkEnd: promptTokens,
          writeBegin: promptTokens,
          writeEnd: end,
          windowEnd: promptTokens,
        },
      ],
    });
    sequence.append(whole.subarray(promptTokens, end));
    parentPort.postMessage({ ended: request, result: await sequence.finish() });
  }
}

const prefills = role === 'prefill';
const engine = new dualpath[prefills ? 'PrefillEngine' : 'DecodeEngine']({
  ...options,
  ...engineOptions,
  ...(prefills
    ? {
        timeModel: new dualpath.LinearTimeModel({
          baseS: 0,
          perNewTokenS: 0,
          perAttentionTokenS: 1,
          perAttentionPairS: 0,
        }),
      }
    : {}),
});
const device = prefills ? prefill(engine) : decode(engine);
parentPort.postMessage({ open: true });
parentPort.once('message', async () => {
  await engine.close();
  await device;
  const { checkedBytes, mismatchedBytes } = gpu.statistics();
  const held =
    (prefills ? engine.staging : engine.hbm).slots - (prefills ? engine.staging : engine.hbm).available;
  parentPort.postMessage({
    closed: {
      checkedBytes,
      mismatchedBytes,
      readBytes: traffic.engine.statistics().readBytes,
      held: held + traffic.buffer.slots - traffic.buffer.available,
    },
  });
  gpu.close();
  controlPort.close();
  schedulerPort.close();
});
