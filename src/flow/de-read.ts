/**
 * The DE read path (paper, Fig. 4 right): storage -> DE buffer; then for each layer DE buffer -> PE HBM over
 * the compute network, compute, and only the miss tokens' KV PE HBM -> DE buffer, where it joins the hits.
 * KV of earlier chunks of the same prompt comes back to the PE the same way.
 */
import type { LayersDescriptor, NopDescriptor } from '../transfer/index.js';
import type { ControlMessage, StageSegment } from '../control/index.js';
import type { BatchCounters } from './batch-counters.js';

type Stage = Extract<ControlMessage, { kind: 'stage' }>;

/** 3-5 on the DE: one segment of the DE buffer into the PE's staging, as the PE frees it. */
export function decodeBufferToStaging(
  stage: Stage,
  segment: StageSegment,
  options: {
    peer: number;
    decodeBuffer: number;
    decodeSlots: number;
    stagingSlots: number;
    layers: number;
    freeCounter: number;
    computeFrom: number;
  },
): LayersDescriptor {
  const { layers } = options;
  const window = Math.min(stage.windowLayers, layers);
  return {
    op: 'send',
    peer: options.peer,
    from: options.decodeBuffer,
    to: stage.geometry,
    fromSlots: options.decodeSlots,
    toSlots: options.stagingSlots,
    blocks: segment.blocks,
    firstBlock: segment.firstBlock,
    tokenBegin: segment.tokenBegin,
    tokenEnd: segment.tokenEnd,
    layers,
    windowEnd: options.computeFrom,
    waits: [
      {
        counter: options.freeCounter,
        value: freeBase(stage.stage, layers) - window + 1,
        valueStep: 1,
        skipSteps: window,
      },
    ],
    signals: [{ counter: stage.arriveCounter, counterStep: stage.arriveStep, value: 1, remote: true }],
  };
}

/**
 * Where the DE's counter of free layers begins for a stage. Every stage has values of its own, so that one
 * which comes late from a stage that was given up says nothing of the next.
 */
function freeBase(stage: number, layers: number): number {
  return stage * layers;
}

/**
 * On the PE: tells the DE of each layer's staging that has become free. Only of those the DE waits for: so no
 * bump can come after the request's last layer has.
 */
export function announceFreeStaging(
  batch: BatchCounters,
  options: { peer: number; freeCounter: number; stage: number },
): NopDescriptor | undefined {
  const steps = batch.layers - batch.windowLayers;
  if (steps === 0) return undefined;
  return {
    op: 'bump',
    peer: options.peer,
    steps,
    waits: [{ counter: batch.free, counterStep: 1, value: batch.piecesOut }],
    signals: [
      {
        counter: options.freeCounter,
        value: freeBase(options.stage, batch.layers),
        ordered: true,
        remote: true,
      },
    ],
  };
}
