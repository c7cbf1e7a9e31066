/** A forward's layers as a pipeline of three steps: transfer in, compute, transfer out. */

export interface LayerTimes {
  readonly layers: number;
  /** Layers of staging that may be in use at once. */
  readonly windowLayers: number;
  /** A layer's hit KV into HBM, its computation, its KV out to the decode side. */
  readonly inS: number;
  readonly computeS: number;
  readonly outS: number;
}

/**
 * Layerwise prefill in closed form: the first layer fills the pipeline, every other adds the slowest of its steps; where
 * the staging window is the limit, each window of layers adds a whole round.
 */
export function layerwiseS({ layers, windowLayers, inS, computeS, outS }: LayerTimes): number {
  const roundS = inS + computeS + outS;
  const slowestS = Math.max(inS, computeS, outS);
  const windows = Math.floor((layers - 1) / windowLayers);
  const rest = (layers - 1) % windowLayers;
  return roundS + windows * Math.max(roundS, windowLayers * slowestS) + rest * slowestS;
}

/** Without it (Basic) all layers' KV comes, then all are computed, then all goes. */
export function sequentialS({ layers, inS, computeS, outS }: LayerTimes): number {
  return layers * (inS + computeS + outS);
}

/** The same pipeline layer by layer, each with times of its own; what the closed form is held against. */
export function layerwiseByEventsS(
  layers: number,
  windowLayers: number,
  times: (layer: number) => Pick<LayerTimes, 'inS' | 'computeS' | 'outS'>,
): number {
  const sentAtS: number[] = [];
  let arrivedS = 0;
  let computedS = 0;
  let sentS = 0;
  for (let layer = 0; layer < layers; layer++) {
    const { inS, computeS, outS } = times(layer);
    const roomAtS = layer < windowLayers ? 0 : sentAtS[layer - windowLayers]!;
    arrivedS = Math.max(arrivedS, roomAtS) + inS;
    computedS = Math.max(computedS, arrivedS) + computeS;
    sentS = Math.max(sentS, computedS) + outS;
    sentAtS.push(sentS);
  }
  return sentS;
}
