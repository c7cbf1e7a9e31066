/**
 * The counters that order one forward batch of a prefill engine, layer by layer:
 *
 *   arrive[l]   additive: one for each piece of hit KV of layer l that has reached the staging
 *   free[l]     additive: one for each piece of layer l that has left the staging
 *   computed    in order: layers computed
 *   sent(r)     additive: one for each piece of a layer of request r that has left
 *
 * A layer is computed when arrive[l] = pieces in; its staging is used again when free[l] = pieces out.
 * Without layerwise prefill (Basic) one counter stands for all layers: compute starts when everything has
 * arrived, sending starts when everything is computed.
 */
import type { TransferEngine, Wait } from '../transfer/index.js';

export class BatchCounters {
  readonly layers: number;
  readonly windowLayers: number;
  readonly layerwise: boolean;
  readonly arrive: number;
  readonly free: number;
  readonly computed: number;
  readonly #count: number;
  /** Pieces of hit KV a layer, all requests of the batch together. */
  piecesIn = 0;
  /** Pieces a layer that leave for DE buffers. */
  piecesOut = 0;
  readonly #engine: TransferEngine;

  /** @param requests of the batch: each has a counter of its own */
  constructor(
    engine: TransferEngine,
    layers: number,
    windowLayers: number,
    layerwise: boolean,
    requests = 0,
  ) {
    this.#engine = engine;
    this.layers = layers;
    this.windowLayers = Math.min(windowLayers, layers);
    this.layerwise = layerwise;
    this.#count = 2 * layers + 1 + requests;
    this.arrive = engine.takeCounters(this.#count);
    this.free = this.arrive + layers;
    this.computed = this.free + layers;
  }

  sent(request: number): number {
    return this.computed + 1 + request;
  }

  get arriveStep(): 0 | 1 {
    return this.layerwise ? 1 : 0;
  }

  /** Layer l may be written: layer l - windowLayers has left. */
  stagingFree(): Wait {
    return {
      counter: this.free - this.windowLayers,
      counterStep: 1,
      skipSteps: this.windowLayers,
      value: this.piecesOut,
    };
  }

  /** Layer l may be computed. */
  arrived(): Wait {
    return this.layerwise
      ? { counter: this.arrive, counterStep: 1, value: this.piecesIn }
      : { counter: this.arrive, value: this.piecesIn * this.layers };
  }

  /** Layer l may be sent. */
  isComputed(): Wait {
    return this.layerwise
      ? { counter: this.computed, value: 1, valueStep: 1 }
      : { counter: this.computed, value: this.layers };
  }

  release(): void {
    this.#engine.counters.giveBack(this.arrive, this.#count);
  }
}
