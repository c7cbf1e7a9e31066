import { DualPathError } from '../errors/index.js';
import { stages, type Stage } from './types.js';

export const stageNames = Object.keys(stages) as readonly Stage[];

/** A bit for each stage, for the record of what a request has done. */
export const stageBits = Object.fromEntries(stageNames.map((stage, bit) => [stage, 1 << bit])) as Readonly<
  Record<Stage, number>
>;

/** @throws INVALID_ARGUMENT for a stage that does not exist */
export function checkStage(request: string, stage: Stage): void {
  if (Object.hasOwn(stageBits, stage)) return;
  throw new DualPathError(
    'INVALID_ARGUMENT',
    `stage ${String(stage)} of request ${request} does not exist: use ${stageNames.join(', ')}`,
    { request, stage: String(stage) },
  );
}
