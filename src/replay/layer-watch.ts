/** When each layer of a forward batch arrived, was computed and had left, on the reactor's clock (CLOCK_MONOTONIC). */
import type { PrefillBatch, PrefillEngine } from '../engine/index.js';
import type { Program } from '../transfer/index.js';

export interface LayerTimes {
  /** All hit KV of the layer is in the staging. */
  arrivedUs: number;
  computedUs: number;
  /** All of the layer is in the DE buffer. */
  leftUs: number;
}

/** The chunk of one request; others may have been computed with it. */
export interface BatchTimeline {
  readonly request: string;
  readonly engine: string;
  readonly requests: number;
  readonly cachedTokens: number;
  readonly newTokens: number;
  /** The batch was formed. */
  readonly begunUs: number;
  readonly layers: readonly LayerTimes[];
}

/**
 * Watches one batch at a time, by programs that wait for the batch's counters, and keeps the one with the most cached tokens. What it
 * costs: three descriptors a batch, and an event a layer each.
 */
export class LayerWatch {
  /** Of the batches that were watched to their end. */
  best: BatchTimeline | undefined;
  #busy = false;

  /** When the batch has just been formed. */
  watch(engine: PrefillEngine, batch: PrefillBatch): void {
    const [entry] = [...batch.entries].sort((a, b) => b.cachedTokens - a.cachedTokens);
    if (this.#busy || entry === undefined || entry.cachedTokens < (this.best?.cachedTokens ?? 0)) return;
    const { counters, signal } = batch;
    const programs: Program[] = [];
    const layers = Array.from({ length: counters.layers }, () => ({
      ...{ arrivedUs: 0, computedUs: 0, leftUs: 0 },
    }));
    const timeline: BatchTimeline = {
      ...{ request: entry.request.name, engine: engine.name, requests: batch.entries.length },
      ...{ cachedTokens: entry.cachedTokens, newTokens: entry.newTokens, layers },
      begunUs: Number(process.hrtime.bigint() / 1000n),
    };
    const left = { counter: counters.free, counterStep: 1, value: counters.piecesOut };
    const waits = { arrivedUs: counters.arrived(), computedUs: counters.isComputed(), leftUs: left };
    const stop = (): void => programs.forEach((program) => engine.traffic.engine.cancel(program));
    try {
      for (const [key, wait] of Object.entries(waits) as [keyof LayerTimes, typeof left][]) {
        const step = { op: 'bump' as const, steps: counters.layers, waits: [wait], event: true };
        programs.push(engine.traffic.engine.submit([step], (layer, us) => (layers[layer]![key] = us)));
      }
    } catch {
      stop(); // the ring is full: batches come first
    }
    this.#busy = true;
    signal.addEventListener('abort', stop, { once: true });
    const over = Promise.allSettled(programs.map(({ done }) => done)).then((results) => {
      this.#busy = false;
      if (results.length < 3 || results.some(({ status }) => status !== 'fulfilled')) return;
      putInOrder(layers);
      this.best = timeline;
    });
    batch.holdUntil(over);
  }
}

/** The reactor looks at one program after the other: a step that was over before another may be seen a pass later. */
function putInOrder(layers: readonly LayerTimes[]): void {
  let nextUs = Infinity;
  for (const times of layers.toReversed()) {
    times.computedUs = Math.min(times.computedUs, times.leftUs, nextUs);
    times.arrivedUs = Math.min(times.arrivedUs, times.computedUs);
    nextUs = times.computedUs;
  }
}
