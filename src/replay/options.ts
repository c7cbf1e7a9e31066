import type { BlockLayout } from '../layout/index.js';
import type { Log } from '../log/index.js';
import type { CopyOptions } from '../traffic/index.js';
import type { DecisionLog, ReadPolicy, TimeModel } from '../scheduler/index.js';

import type { LayerWatch } from './layer-watch.js';

/** How a replay moves hits; the table is the documentation. */
export const replayModes = {
  basic: 'the prefill side reads; no layerwise prefill: transfers and compute take turns',
  layerwise: 'the prefill side reads; layers overlap (Basic + layerwise, the baseline of speed-ups)',
  dualpath: 'each request is read on the side with the shorter read queue',
  split: 'each request is read on both sides at once, in proportion to queues and rates',
  oracle: 'hits cost nothing: no storage reads, no transfers of hit KV',
} as const;

export type ReplayMode = keyof typeof replayModes;

export interface ModePlan {
  readonly policy: ReadPolicy;
  readonly layerwise: boolean;
  readonly freeHits: boolean;
}

export const modePlans: Readonly<Record<ReplayMode, ModePlan>> = {
  basic: { policy: 'prefill', layerwise: false, freeHits: false },
  layerwise: { policy: 'prefill', layerwise: true, freeHits: false },
  dualpath: { policy: 'shorter-queue', layerwise: true, freeHits: false },
  split: { policy: 'split', layerwise: true, freeHits: false },
  oracle: { policy: 'none', layerwise: true, freeHits: true },
};

/** An emulated cluster: nodes with a storage NIC (SNIC), engines with a compute NIC (CNIC) each. */
export interface ClusterOptions {
  readonly layout: BlockLayout;
  readonly prefillNodes: number;
  readonly decodeNodes: number;
  readonly enginesPerNode: number;
  /** Bytes a second of each node's SNIC, in each direction. */
  readonly snicBytesPerS: number;
  /** Bytes a second of each engine's CNIC, in each direction; 0: not limited. */
  readonly cnicBytesPerS: number;
  readonly prefillBufferBytes: number;
  readonly decodeBufferBytes: number;
  /** HBM of a prefill engine for the KV under way; the same bytes in every mode. */
  readonly prefillHbmBytes: number;
  readonly decodeHbmBytes: number;
  readonly windowLayers: number;
  readonly timeModel: TimeModel;
  readonly quotaS: number;
  /** Modelled time of one decode step, whatever the batch. */
  readonly decodeStepS: number;
  /** Sessions that run at once; the others wait. Infinity: all. */
  readonly concurrency: number;
  /** What copies between buffers and HBM; left out: memcpy. */
  readonly copies?: CopyOptions;
  /** A directory that the run makes and removes. */
  readonly storePath: string;
  readonly seed: number;
  /** Keeps why each request went where it went. */
  readonly decisions?: DecisionLog;
  /** Keeps when the layers of a batch were where; of engines of this process. */
  readonly layerWatch?: LayerWatch;
  /** Of each request, and of what the engines of this process are given. */
  readonly log?: Log;
}

/** DE buffer blocks a request keeps until it ends, for persisting what it generates. */
export const decodeSpareBlocks = 1;
