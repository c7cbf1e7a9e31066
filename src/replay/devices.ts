/** The emulated inference engine: what a real one does between the data plane's calls. */
import { KvSeeds, type EmulatedGpu } from '../emulation/index.js';
import type {
  DecodeEngine,
  DecodeSequence,
  PrefillBatch,
  PrefillEngine,
  SequenceResult,
} from '../engine/index.js';
import type { LayerWatch } from './layer-watch.js';

/** Computes every batch of a prefill engine on its GPU, layer by layer, checking all hit KV at PE HBM. */
export async function runPrefill(
  engine: PrefillEngine,
  gpu: EmulatedGpu,
  freeHits: boolean,
  layerWatch?: LayerWatch,
): Promise<void> {
  for await (const batch of engine.batches()) {
    layerWatch?.watch(engine, batch);
    launchBatch(engine, gpu, batch, freeHits);
  }
}

function launchBatch(engine: PrefillEngine, gpu: EmulatedGpu, batch: PrefillBatch, freeHits: boolean): void {
  const { counters } = batch;
  const { layers, computed } = counters;
  const launch = gpu.launch({
    steps: layers,
    stepDurationS: batch.totalS / layers,
    waits: batch.deviceWaits,
    signals: [{ counter: computed, value: 0, ordered: true }],
    bodies: batch.entries.map(({ request, cachedTokens, newTokens, staging }) => ({
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
    })),
  });
  const stop = (): void => gpu.cancel(launch);
  if (batch.signal.aborted) stop();
  else batch.signal.addEventListener('abort', stop, { once: true });
  const over = gpu.engine.submit([{ op: 'bump', waits: [{ counter: computed, value: layers }] }]);
  batch.holdUntil(over.done);
}

export interface DecodeHooks {
  /** The tokens that the request generates. */
  reply(request: string): Uint32Array;
  /** The sequence is over and its memory free. */
  ended(request: string, result: SequenceResult): void;
  /** Decoding itself failed; of a request that was ended from elsewhere the scheduler hears by its engine. */
  failed(request: string, error: unknown): void;
}

/** Decodes every sequence of an engine, each in a lane of its own, checking its whole prompt KV at DE HBM. */
export async function runDecode(
  engine: DecodeEngine,
  gpu: EmulatedGpu,
  options: { readonly lanes: number; readonly stepS: number; readonly freeHits: boolean },
  hooks: DecodeHooks,
): Promise<void> {
  const lanes = Array.from({ length: options.lanes }, (_, lane) => lane);
  for await (const sequence of engine.sequences()) {
    // As many lanes as requests can be under way: there is always one.
    const lane = lanes.pop() ?? 0;
    void serve(engine, gpu, sequence, { ...options, lane }, hooks).finally(() => lanes.push(lane));
  }
}

interface LaneOptions {
  readonly lane: number;
  readonly stepS: number;
  readonly freeHits: boolean;
}

/** A sequence is finished whatever becomes of it: its memory is held until then. */
async function serve(
  engine: DecodeEngine,
  gpu: EmulatedGpu,
  sequence: DecodeSequence,
  options: LaneOptions,
  hooks: DecodeHooks,
): Promise<void> {
  let failure: { readonly error: unknown } | undefined;
  try {
    await decode(engine, gpu, sequence, options, hooks.reply(sequence.request));
  } catch (error) {
    failure = { error };
  }
  const result = await sequence.finish();
  if (failure === undefined) hooks.ended(sequence.request, result);
  else if (!sequence.signal.aborted) hooks.failed(sequence.request, failure.error);
}

async function decode(
  engine: DecodeEngine,
  gpu: EmulatedGpu,
  sequence: DecodeSequence,
  options: LaneOptions,
  reply: Uint32Array,
): Promise<void> {
  const { promptTokens, hitBlocks } = sequence;
  const { blockTokens } = engine.traffic.layout;
  const whole = new Uint32Array(promptTokens + reply.length);
  whole.set(sequence.tokens);
  whole.set(reply, promptTokens);
  const body = {
    geometry: engine.hbm.geometry,
    list: sequence.hbmOffset,
    count: sequence.hbmCount,
    firstBlock: 0,
    seeds: new KvSeeds(whole),
    windowEnd: promptTokens,
  };
  const { lane, stepS } = options;
  await gpu.run({
    lane,
    allLayers: true,
    stepDurationS: 0,
    bodies: [
      {
        ...body,
        checkBegin: options.freeHits ? hitBlocks * blockTokens : 0,
        checkEnd: promptTokens,
        writeBegin: 0,
        writeEnd: 0,
      },
    ],
  });
  // The first token came with the prefill; the last one's KV is never computed.
  const end = promptTokens + Math.max(reply.length - 1, 0);
  for (let at = promptTokens; at < end;) {
    sequence.signal.throwIfAborted();
    const to = Math.min(end, (Math.floor(at / blockTokens) + 1) * blockTokens);
    await gpu.run({
      lane,
      allLayers: true,
      stepDurationS: (to - at) * stepS,
      bodies: [{ ...body, checkBegin: 0, checkEnd: 0, writeBegin: at, writeEnd: to }],
    });
    sequence.append(whole.subarray(at, to));
    at = to;
  }
}
