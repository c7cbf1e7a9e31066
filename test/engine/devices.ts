import { KvSeeds, type EmulatedGpu } from '../../src/emulation/index.js';
import type { DecodeEngine, DecodeSequence, PrefillBatch, PrefillEngine } from '../../src/engine/index.js';

/** How a test's device computes a batch; each checks all hit KV at PE HBM and writes the new tokens' KV. */
export type Compute = (engine: PrefillEngine, gpu: EmulatedGpu, batch: PrefillBatch) => Promise<void>;

type Bodies = Parameters<EmulatedGpu['launch']>[0]['bodies'];

function bodiesOf(engine: PrefillEngine, batch: PrefillBatch, freeHits: boolean): NonNullable<Bodies> {
  return batch.entries.map(({ request, cachedTokens, newTokens, staging }) => ({
    geometry: engine.staging.geometry,
    list: staging.offset,
    count: staging.count,
    firstBlock: 0,
    seeds: new KvSeeds(request.tokens.subarray(0, cachedTokens + newTokens)),
    checkBegin: 0,
    checkEnd: freeHits ? 0 : cachedTokens,
    writeBegin: cachedTokens,
    writeEnd: cachedTokens + newTokens,
    windowEnd: cachedTokens,
  }));
}

/** The device waits on the batch's counters itself: JavaScript is never between two layers. */
export function onDevice(freeHits: boolean, stepDurationS = 0): Compute {
  return async (engine, gpu, batch) => {
    const { computed, layers } = batch.counters;
    const launch = gpu.launch({
      steps: layers,
      stepDurationS,
      waits: batch.deviceWaits,
      signals: [{ counter: computed, value: 0, ordered: true }],
      bodies: bodiesOf(engine, batch, freeHits),
    });
    const stop = (): void => gpu.cancel(launch);
    if (batch.signal.aborted) stop();
    else batch.signal.addEventListener('abort', stop, { once: true });
    const over = gpu.engine.submit([{ op: 'bump', waits: [{ counter: computed, value: layers }] }]);
    batch.holdUntil(over.done);
  };
}

/** JavaScript waits for each layer, lets the GPU compute it and says so. */
export function fromJavaScript(freeHits: boolean): Compute {
  return async (engine, gpu, batch) => {
    const { layers } = batch.counters;
    const go = gpu.engine.takeCounters(2);
    const done = go + 1;
    const kernels = gpu.launch({
      steps: layers,
      stepDurationS: 0,
      waits: [{ counter: go, value: 1, valueStep: 1 }],
      signals: [{ counter: done, value: 1 }],
      bodies: bodiesOf(engine, batch, freeHits),
    });
    try {
      for (const layer of batch.layers()) {
        await layer.ready();
        await gpu.engine.submit([{ op: 'bump', signals: [{ counter: go, value: 1 }] }]).done;
        await gpu.engine.submit([{ op: 'bump', waits: [{ counter: done, value: layer.layer + 1 }] }]).done;
        layer.done();
      }
    } finally {
      gpu.cancel(kernels);
      await gpu.engine.submit([{ op: 'bump', waits: [{ counter: done, value: layers }] }]).done;
      gpu.engine.counters.giveBack(go, 2);
    }
  };
}

/** Checks the whole prompt KV at DE HBM, then generates the reply, block by block; its last token gets no KV. */
export async function decodeSequence(
  engine: DecodeEngine,
  gpu: EmulatedGpu,
  sequence: DecodeSequence,
  reply: Uint32Array,
  freeHits: boolean,
): Promise<void> {
  const { promptTokens, hitBlocks } = sequence;
  const { blockTokens } = engine.traffic.layout;
  const whole = new Uint32Array(promptTokens + reply.length);
  whole.set(sequence.tokens);
  whole.set(reply, promptTokens);
  const run = (check: [number, number], write: [number, number]): Promise<void> =>
    gpu.run({
      allLayers: true,
      stepDurationS: 0,
      bodies: [
        {
          geometry: engine.hbm.geometry,
          list: sequence.hbmOffset,
          count: sequence.hbmCount,
          firstBlock: 0,
          seeds: new KvSeeds(whole),
          windowEnd: promptTokens,
          checkBegin: check[0],
          checkEnd: check[1],
          writeBegin: write[0],
          writeEnd: write[1],
        },
      ],
    });
  await run([freeHits ? hitBlocks * blockTokens : 0, promptTokens], [0, 0]);
  const end = promptTokens + Math.max(reply.length - 1, 0);
  for (let at = promptTokens; at < end;) {
    const to = Math.min(end, (Math.floor(at / blockTokens) + 1) * blockTokens);
    await run([0, 0], [at, to]);
    sequence.append(whole.subarray(at, to));
    at = to;
  }
}
