import type { Admission } from '../scheduler/index.js';
import { BoundedClock } from './clock.js';
import { longestStep, type CheckedOptions } from './options.js';
import type { DroppedWord, LeaseEvent, LeaseSink } from './types.js';

export type EventBody = LeaseEvent extends infer E ? (E extends LeaseEvent ? Omit<E, 'atS'> : never) : never;

/** What the parts of a ledger share. */
export class LeaseContext {
  readonly options: CheckedOptions;
  readonly admission: Admission;
  readonly sink: LeaseSink;
  readonly clock: BoundedClock;
  readonly counts = {
    submitted: 0,
    resubmitted: 0,
    refused: 0,
    assigned: 0,
    adopted: 0,
    returned: 0,
    completed: 0,
    failed: 0,
    expiredEngines: 0,
    forgottenOutcomes: 0,
    badReports: 0,
  };
  readonly dropped: Record<DroppedWord, number> = { stage: 0, result: 0, tokens: 0, failure: 0, held: 0 };
  /** Nothing is assigned yet. */
  grace = true;

  constructor(options: CheckedOptions, admission: Admission, sink: LeaseSink) {
    this.options = options;
    this.admission = admission;
    this.sink = sink;
    this.clock = new BoundedClock(options.leaseS * longestStep);
  }

  get nowS(): number {
    return this.clock.nowS;
  }

  emit(event: EventBody): void {
    this.options.observe?.({ atS: this.clock.nowS, ...event });
  }

  drop(what: DroppedWord, admission: number): void {
    this.dropped[what]++;
    this.emit({ kind: 'dropped', admission, what });
  }
}
