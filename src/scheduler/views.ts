import type { RequestState } from './request-entry.js';
import type { Assignment, ReadSide } from './types.js';

/** What kept a head of a queue from going on. */
export type WaitCause = 'prefill-room' | 'decode-hbm' | 'decode-buffer';

/** Counts since the start, and what there is now. */
export interface AdmissionStatistics {
  readonly submitted: number;
  readonly admitted: number;
  readonly completed: number;
  readonly failed: number;
  /** Reports of stages or ends for what has ended, was never admitted, or belongs to another admission. */
  readonly ignoredReports: number;
  /** Engine loads that were not newer than the last. */
  readonly staleLoads: number;
  /** How often a head of a queue was found to have to wait, by cause. */
  readonly headWaits: Readonly<Record<WaitCause, number>>;
  /** Assignments by the side that reads; 'prefill' also where nothing is read. */
  readonly assignedBySide: Readonly<Record<ReadSide, number>>;
  readonly prefillReadBlocks: number;
  readonly decodeReadBlocks: number;
  /** Without a PE, or with one and in line for a DE. */
  readonly waiting: number;
  readonly running: number;
}

/** A request on its way: what has been decided of it. */
export interface RequestView {
  readonly state: RequestState;
  readonly prefillEngine: string | undefined;
  readonly decodeGroup: string | undefined;
  readonly assignment: Assignment | undefined;
}

export function noWaits(): Record<WaitCause, number> {
  return { 'prefill-room': 0, 'decode-hbm': 0, 'decode-buffer': 0 };
}

type AdmissionCount = Exclude<
  keyof AdmissionStatistics,
  'headWaits' | 'assignedBySide' | 'waiting' | 'running'
>;

export function noCounts(): Record<AdmissionCount, number> {
  return {
    submitted: 0,
    admitted: 0,
    completed: 0,
    failed: 0,
    ignoredReports: 0,
    staleLoads: 0,
    prefillReadBlocks: 0,
    decodeReadBlocks: 0,
  };
}
