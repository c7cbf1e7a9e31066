import type { DualPathError } from '../errors/index.js';
import type { AdmissionOptions, Assignment, EngineCapacity, Stage } from '../scheduler/index.js';

export interface LeaseOptions extends Omit<AdmissionOptions, 'engines' | 'admissionBase' | 'maxWaiting'> {
  /** The model that is served; requests and engines name it. */
  readonly model: string;
  /** Of this scheduler: larger than that of every one before it. */
  readonly epoch: number;
  /** Share of the epoch's numbers that is not used: what schedulers before this one may have given out in it; default 0. */
  readonly epochShare?: number;
  /** Most requests that may wait; then submissions are refused. Default 65,536. */
  readonly maxWaiting?: number;
  /** A lease ends so long after its engine was last heard; default 5. */
  readonly leaseS?: number;
  /** After the start nothing is assigned for so long, so that engines can say what they have; default: a lease and its margin. */
  readonly graceS?: number;
  /** Engines that a request is given to, one after the other, before it ends with an error; default 3. */
  readonly maxTries?: number;
  /** Waiting for an engine to join a request ends after so long; default 60. */
  readonly noEngineS?: number;
  /** A client that does not come back has its requests cancelled after so long; default 60. */
  readonly clientGoneS?: number;
  /** An outcome that nobody has acknowledged is kept so long; default 300. */
  readonly retainS?: number;
  /** Most outcomes kept; default 65,536. */
  readonly maxRetained?: number;
  /** Most bytes of one request's payload; default 1 MiB. */
  readonly maxPayloadBytes?: number;
  /** Most bytes of all payloads together; default 256 MiB. */
  readonly maxTotalPayloadBytes?: number;
  /** Hears of all that happens, for metrics, spans and explanations. Must not throw. */
  readonly observe?: (event: LeaseEvent) => void;
}

/** An engine as its leader presents it. */
export interface EnginePresence {
  readonly capacity: EngineCapacity;
  /** Grows with each start of the engine. */
  readonly incarnation: number;
  /** Where other engines reach it, by purpose. */
  readonly addresses: Readonly<Record<string, string>>;
}

/** What an engine says that it has. */
export interface HeldLease {
  readonly engine: string;
  readonly assignment: Assignment;
  readonly promptTokens: number;
  readonly hitTokens: number;
  readonly maxNewTokens: number;
  readonly attempt: number;
  readonly done: readonly Stage[];
  readonly failure: DualPathError | undefined;
}

export interface GroupHello {
  readonly group: string;
  readonly model: string;
  readonly engines: readonly EnginePresence[];
  readonly held: readonly HeldLease[];
}

/** What a client asks for. */
export interface LeaseSubmission {
  /** The idempotency key, unique for the client. */
  readonly key: string;
  readonly model: string;
  readonly promptTokens: number;
  readonly hitTokens: number;
  readonly maxNewTokens: number;
  readonly tenant?: string;
  readonly priority?: number;
  readonly deadlineS?: number;
  readonly payload?: Uint8Array;
  readonly traceparent?: string;
  readonly progress?: boolean;
  /** Tokens that the client has already. */
  readonly received?: Uint32Array;
}

/** An assignment as its engines are told. */
export interface LeaseGrant {
  readonly assignment: Assignment;
  readonly promptTokens: number;
  readonly hitTokens: number;
  readonly maxNewTokens: number;
  readonly attempt: number;
  readonly payload: Uint8Array;
  readonly resumeTokens: Uint32Array;
  readonly traceparent: string;
}

export interface LeaseOutcome {
  /** Undefined: it has ended well. */
  readonly error: DualPathError | undefined;
  readonly attempts: number;
  readonly tokens: number;
  readonly decodeEngine: string | undefined;
}

/** Where what the ledger decides goes: it appends to messages and does nothing else. */
export interface LeaseSink {
  assign(group: string, grant: LeaseGrant): void;
  revoke(group: string, admission: number, error: DualPathError): void;
  resend(group: string, admission: number, first: number): void;
  drained(group: string): void;
  accepted(client: string, key: string): void;
  refused(client: string, key: string, error: DualPathError, retryAfterS: number): void;
  progress(client: string, key: string, what: Stage | Assignment): void;
  tokens(client: string, key: string, first: number, tokens: Uint32Array): void;
  ended(client: string, key: string, outcome: LeaseOutcome): void;
}

export type LeaseEvent = { readonly atS: number } & (
  | { readonly kind: 'submitted' | 'queued' | 'parked'; readonly request: string }
  | {
      readonly kind: 'refused';
      readonly request: string;
      readonly error: DualPathError;
      readonly retryAfterS: number;
    }
  | {
      readonly kind: 'assigned';
      readonly request: string;
      readonly assignment: Assignment;
      readonly attempt: number;
      readonly waitedS: number;
      readonly traceparent: string;
    }
  | { readonly kind: 'adopted'; readonly request: string; readonly assignment: Assignment }
  | { readonly kind: 'stage'; readonly request: string; readonly admission: number; readonly stage: Stage }
  | {
      readonly kind: 'tokens';
      readonly request: string;
      readonly admission: number;
      readonly first: number;
      readonly count: number;
    }
  | {
      readonly kind: 'returned';
      readonly request: string;
      readonly admission: number;
      readonly attempt: number;
      readonly error: DualPathError;
    }
  | {
      readonly kind: 'ended';
      readonly request: string;
      readonly error: DualPathError | undefined;
      readonly attempts: number;
      readonly ranS: number;
    }
  | { readonly kind: 'dropped'; readonly admission: number; readonly what: DroppedWord }
  | { readonly kind: 'engine'; readonly engine: string; readonly change: EngineChange }
  | { readonly kind: 'grace'; readonly over: boolean }
  | { readonly kind: 'clock'; readonly leapS: number }
);

/** Words of leases that have ended, or of none. */
export type DroppedWord = 'stage' | 'result' | 'tokens' | 'failure' | 'held';

export type EngineChange =
  'joined' | 'open' | 'closed' | 'draining' | 'left' | 'lost' | 'expired' | 'superseded';

export interface LeaseStatistics {
  readonly epoch: number;
  readonly grace: boolean;
  /** Without an assignment. */
  readonly waiting: number;
  /** Of these, not in the scheduler's queue: no engines, or the grace period. */
  readonly parked: number;
  readonly leased: number;
  /** Taken back, and not yet let go by all their engines. */
  readonly returning: number;
  /** Outcomes kept until they are acknowledged. */
  readonly retained: number;
  readonly engines: number;
  readonly groups: number;
  readonly clients: number;
  readonly payloadBytes: number;
  readonly submitted: number;
  readonly resubmitted: number;
  readonly refused: number;
  readonly assigned: number;
  readonly adopted: number;
  readonly returned: number;
  readonly completed: number;
  readonly failed: number;
  readonly expiredEngines: number;
  readonly forgottenOutcomes: number;
  readonly badReports: number;
  readonly clockLeaps: number;
  readonly dropped: Readonly<Record<DroppedWord, number>>;
}
