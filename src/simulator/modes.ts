import type { ReadPolicy } from '../scheduler/index.js';

/** What a simulated cluster does; the table is the documentation. */
export const simulatedModes = {
  basic: 'the prefill side reads; transfers and compute take turns; engines in turn',
  layerwise: 'Basic with layerwise prefill: transfers overlap with compute',
  'round-robin': 'layerwise and dual path: engines and read sides in turn, whatever the load',
  dualpath: 'layerwise, dual path and scheduling: the side with the shorter read queue',
  split: 'as dualpath, each request read on both sides',
  oracle: 'hits cost nothing: no reads, no transfers of hit KV',
} as const;

export type SimulatedMode = keyof typeof simulatedModes;

export interface ModePlan {
  readonly policy: ReadPolicy;
  /** `Admission` of src/scheduler, or engines in turn. */
  readonly isScheduled: boolean;
  readonly isLayerwise: boolean;
}

export const modePlans: Readonly<Record<SimulatedMode, ModePlan>> = {
  basic: { policy: 'prefill', isScheduled: false, isLayerwise: false },
  layerwise: { policy: 'prefill', isScheduled: false, isLayerwise: true },
  'round-robin': { policy: 'round-robin', isScheduled: false, isLayerwise: true },
  dualpath: { policy: 'shorter-queue', isScheduled: true, isLayerwise: true },
  split: { policy: 'split', isScheduled: true, isLayerwise: true },
  oracle: { policy: 'none', isScheduled: true, isLayerwise: true },
};
