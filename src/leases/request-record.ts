import type { DualPathError } from '../errors/index.js';
import type { Assignment, RequestDescription, Stage } from '../scheduler/index.js';
import type { EngineRecord } from './engine-table.js';
import { TokenLog } from './token-log.js';
import type { LeaseGrant, LeaseOutcome, LeaseSubmission } from './types.js';

/**
 * parked: cannot be in the scheduler's queue now (grace period, no engines). queued: waits for engines in it. leased:
 * has its engines. returning: taken back, but not every engine has let it go. ended: has its outcome, which is kept
 * until the client has acknowledged it.
 */
export type LeaseState = 'parked' | 'queued' | 'leased' | 'returning' | 'ended';

const nothing = new Uint8Array();

/** One request of one client, from its submission until its outcome has been acknowledged. */
export class RequestRecord {
  /** Of the client and its key; unique. */
  readonly name: string;
  readonly client: string;
  readonly key: string;
  readonly arrivedS: number;
  description: RequestDescription;
  payload: Uint8Array = nothing;
  traceparent = '';
  wantsProgress = false;
  deadlineS = Infinity;
  state: LeaseState = 'parked';
  parkedS: number;
  assignedS = 0;
  tries = 0;
  assignment: Assignment | undefined;
  /** It runs by the scheduler's account; not so what engines reported in the grace period, until its end. */
  admitted = false;
  /** Engines whose lease on it has not ended. */
  readonly holders: EngineRecord[] = [];
  /** Stages done, for what is not admitted. */
  done = new Set<Stage>();
  /** Its prefill engine is through with it. */
  prefilled = false;
  readonly log = new TokenLog();
  /** The client's stream is there and has been sent the tokens before this one. */
  attached = false;
  sent = 0;
  /** Nobody has submitted it to this scheduler: engines had it. */
  orphan = false;
  error: DualPathError | undefined;
  outcome: LeaseOutcome | undefined;
  acknowledged = false;

  constructor(client: string, key: string, description: RequestDescription, nowS: number) {
    this.name = description.request;
    this.client = client;
    this.key = key;
    this.description = description;
    this.arrivedS = nowS;
    this.parkedS = nowS;
  }

  get grant(): LeaseGrant {
    const { promptTokens, hitTokens, maxNewTokens } = this.description;
    return {
      assignment: this.assignment!,
      ...{ promptTokens, hitTokens, maxNewTokens },
      attempt: this.tries,
      payload: this.payload,
      resumeTokens: this.log.from(0),
      traceparent: this.traceparent,
    };
  }
}

/** Keys may hold anything but are apart for each client. */
export function nameOf(client: string, key: string): string {
  return `${client}/${key}`;
}

export function descriptionOf(name: string, submission: LeaseSubmission): RequestDescription {
  const { promptTokens, hitTokens, maxNewTokens, tenant, priority } = submission;
  return {
    request: name,
    ...{ promptTokens, hitTokens, maxNewTokens },
    ...(tenant === undefined ? {} : { tenant }),
    ...(priority === undefined ? {} : { priority }),
  };
}
