import { DualPathError } from '../errors/index.js';
import { requireFinite } from './check.js';
import type { EngineEntry, GroupEntry } from './ledger.js';
import { prefillHbmBlocks, type Needs } from './needs.js';
import type { AdmissionOptions } from './options.js';
import type { Assignment, RequestDescription } from './types.js';
import type { RequestView } from './views.js';

/** Where a request is: in the waiting queue; with a PE and in line for a DE; assigned; over. */
export type RequestState = 'waiting' | 'placed' | 'running' | 'ended';

/** One request from submission to its end. */
export interface RequestEntry {
  readonly description: RequestDescription;
  /** Order of submission. */
  readonly sequence: number;
  /** Its place in the waiting queue: the least first, equals by `sequence`. */
  readonly key: number;
  /** What it adds to tok_e of its PE. */
  readonly prefillTokens: number;
  state: RequestState;
  /** From 'placed' on. */
  needs: Needs | undefined;
  prefill: EngineEntry | undefined;
  /** All its hits are read on the prefill side, whose buffer it holds from 'placed' on. */
  readsAll: boolean;
  decodeGroup: GroupEntry | undefined;
  decode: EngineEntry | undefined;
  assignment: Assignment | undefined;
  /** A bit for each stage done. */
  done: number;
}

/** What a request adds to tok_e of its DE. */
export function decodeTokensOf({ description }: RequestEntry): number {
  return description.promptTokens + description.maxNewTokens;
}

/** What a request has before it has a PE. */
export const unplaced = {
  state: 'waiting',
  needs: undefined,
  prefill: undefined,
  readsAll: false,
  decodeGroup: undefined,
  decode: undefined,
  assignment: undefined,
  done: 0,
} as const satisfies Partial<RequestEntry>;

/** @throws INVALID_ARGUMENT for a time that is negative or no number */
export function newEntry(
  description: RequestDescription,
  sequence: number,
  nowS: number,
  options: Required<AdmissionOptions>,
): RequestEntry {
  requireFinite('nowS', nowS, 'not negative', 'give the time of arrival in seconds');
  const { hitTokenWeight, order, slackSPerToken, priorityHeadStartS } = options;
  const { promptTokens, hitTokens, priority = 0 } = description;
  // At least the last token of a prompt is computed.
  const prefillTokens = Math.max(1, Math.round(promptTokens - (1 - hitTokenWeight) * hitTokens));
  const slackS = order === 'slack' ? slackSPerToken * prefillTokens : 0;
  return {
    description: { ...description },
    sequence,
    key: nowS + slackS - priorityHeadStartS * priority,
    prefillTokens,
    ...unplaced,
  };
}

export function viewOf({ state, prefill, decode, decodeGroup, assignment }: RequestEntry): RequestView {
  return {
    state,
    prefillEngine: prefill?.capacity.engine,
    decodeGroup: (decode?.group ?? decodeGroup)?.name,
    assignment,
  };
}

export function nameInUse(request: string): DualPathError {
  const message = `request ${request} has not ended yet: give every request its own name`;
  return new DualPathError('INVALID_ARGUMENT', message, { request });
}

/** What an assigned request is to its engines, once its DE and its read side are known. */
export function assignmentOf(
  entry: RequestEntry,
  plan: Pick<Assignment, 'side' | 'prefillReadBlocks' | 'decodeReadBlocks'>,
  number: Pick<Assignment, 'epoch' | 'admission'>,
): Assignment {
  const needs = entry.needs!;
  const prefill = entry.prefill!;
  return {
    request: entry.description.request,
    ...number,
    prefillEngine: prefill.capacity.engine,
    decodeEngine: entry.decode!.capacity.engine,
    side: plan.side,
    prefillReadBlocks: plan.prefillReadBlocks,
    decodeReadBlocks: plan.decodeReadBlocks,
    promptBlocks: needs.promptBlocks,
    prefillHbmBlocks: prefillHbmBlocks(prefill, needs),
    decodeHbmBlocks: needs.decodeHbmBlocks,
  };
}
