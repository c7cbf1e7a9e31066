/**
 * Why a request went where it went: what each decision looked at and what it chose. Plain data, kept by `DecisionLog`
 * where somebody asks for it; without a log nothing here runs.
 */
import type { Assignment, EngineRole, ReadPolicy, ReadSide } from './types.js';
import type { WaitCause } from './views.js';

/** How many engines or groups a decision names; those that came first in its order. */
export const maxCandidates = 4;

/** PE classes of Algorithm 1 among the engines that a decision was about. */
export interface ClassCounts {
  /** tok_e over beta: gets nothing. */
  readonly c1: number;
  /** Its node's read queue is at most alpha. */
  readonly c2: number;
  /** Its node's read queue is over alpha. */
  readonly c3: number;
  readonly lost: number;
}

export interface PrefillCandidate {
  readonly engine: string;
  readonly class: 'C2' | 'C3';
  /** tok_e. */
  readonly tokens: number;
  /** Seconds until its node's storage link has read what is queued on it. */
  readonly readQueueS: number;
  readonly freeBufferBlocks: number;
  /** It has the memory that the request would hold there. */
  readonly fits: boolean;
}

export interface PrefillDecision {
  readonly kind: 'prefill';
  /** Undefined: the request has to wait. */
  readonly engine: string | undefined;
  readonly classes: ClassCounts;
  readonly candidates: readonly PrefillCandidate[];
  readonly bufferBlocks: number;
  readonly alphaS: number;
  /** null: there is none. */
  readonly betaTokens: number | null;
}

export interface DecodeGroupDecision {
  readonly kind: 'decode-group';
  readonly group: string;
  /** Tokens on its engines and in its private queue. */
  readonly candidates: readonly { readonly group: string; readonly tokens: number }[];
}

export interface DecodeCandidate {
  readonly engine: string;
  /** seq_e. */
  readonly requests: number;
  /** tok_e. */
  readonly tokens: number;
  readonly freeHbmBlocks: number;
  readonly freeBufferBlocks: number;
  /** tok_e with the request is at most Z. */
  readonly withinZ: boolean;
  readonly fits: boolean;
}

export interface DecodeDecision {
  readonly kind: 'decode';
  /** Undefined: the request has to wait. */
  readonly engine: string | undefined;
  readonly group: string;
  readonly rule: 'fewest-requests-within-z' | 'least-tokens' | 'none-fits';
  readonly zTokens: number;
  readonly requestTokens: number;
  readonly hbmBlocks: number;
  readonly bufferBlocks: number;
  readonly candidates: readonly DecodeCandidate[];
}

/** Why a side reads; the table is the documentation. */
export const readReasons = {
  'nothing-to-read': 'no block of the prompt is stored, or hits are free (policy none)',
  'other-side-failed': 'the prefill side has just failed this request',
  policy: 'the policy leaves the prefill side no choice: it holds the buffer for it',
  'prefill-buffer-short': 'the PE has no buffer for all hits',
  'shorter-queue': 'its storage link finishes the request first',
  tie: 'both links would finish at once: the sides take turns',
  turn: 'the sides take turns whatever the load (round-robin)',
  balance: 'both links finish at once with this split',
} as const;

export type ReadReason = keyof typeof readReasons;

export interface SideFacts {
  readonly engine: string;
  /** On its node's storage link before this request. */
  readonly queueBlocks: number;
  /** Until the link had read the queue and all of this request's hits. */
  readonly finishS: number;
}

export interface ReadDecision {
  readonly kind: 'read';
  readonly side: ReadSide;
  readonly reason: ReadReason;
  readonly policy: ReadPolicy;
  readonly hitBlocks: number;
  readonly prefillReadBlocks: number;
  readonly decodeReadBlocks: number;
  readonly prefillFreeBufferBlocks: number;
  readonly prefill: SideFacts;
  readonly decode: SideFacts;
}

export interface SubmitDecision {
  readonly kind: 'submit';
  readonly promptTokens: number;
  readonly hitTokens: number;
  readonly maxNewTokens: number;
  readonly tenant: string | undefined;
  readonly priority: number;
  readonly avoidSide: EngineRole | undefined;
  /** Place in the waiting order; the least comes first. */
  readonly key: number;
  /** Requests that waited for a PE before it. */
  readonly ahead: number;
}

export interface WaitDecision {
  readonly kind: 'wait';
  readonly cause: WaitCause;
  /** How often it was found to have to wait for this, one time after the other. */
  readonly times: number;
  readonly last: PrefillDecision | DecodeDecision;
}

export interface AssignedDecision {
  readonly kind: 'assigned';
  readonly assignment: Assignment;
}

export interface EndDecision {
  readonly kind: 'end';
  /** null: it ended well. */
  readonly error: { readonly code: string; readonly message: string } | null;
}

/** Its PE was lost before anybody had heard of it. */
export interface PlacedAnewDecision {
  readonly kind: 'placed-anew';
  readonly lostEngine: string;
}

export type Decision =
  | SubmitDecision
  | PrefillDecision
  | DecodeGroupDecision
  | DecodeDecision
  | ReadDecision
  | WaitDecision
  | AssignedDecision
  | PlacedAnewDecision
  | EndDecision;

export type TimedDecision = Decision & {
  /** Seconds on the log's clock. */
  readonly atS: number;
};

/** All that was decided of one request, in order. */
export interface RequestDecisions {
  readonly request: string;
  readonly decisions: readonly TimedDecision[];
  /** Decisions beyond the most that are kept of a request. */
  readonly dropped: number;
}
