import { stages, type Stage } from './types.js';

export const stageNames = Object.keys(stages) as readonly Stage[];

/** A bit for each stage, for the record of what a request has done. */
export const stageBits = Object.fromEntries(stageNames.map((stage, bit) => [stage, 1 << bit])) as Readonly<
  Record<Stage, number>
>;
