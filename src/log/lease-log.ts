import type { LeaseEvent } from '../leases/index.js';
import { errorFields, roundedMs, traceIdOf, type Log } from './fields.js';
import { assignmentFields } from './scheduler-log.js';

const inMs = (seconds: number): number => roundedMs(seconds * 1000);
const worrying: ReadonlySet<string> = new Set(['lost', 'expired', 'superseded']);

/** For the `observers` of a scheduler: a line an event. Tokens are counted elsewhere and not logged. */
export function leaseLog(log: Log): (event: LeaseEvent) => void {
  return (event) => {
    switch (event.kind) {
      case 'tokens':
        return;
      case 'engine':
        return log[worrying.has(event.change) ? 'warn' : 'info'](
          { engine: event.engine, change: event.change },
          `engine ${event.change}`,
        );
      case 'grace':
        return log.info({ over: event.over }, event.over ? 'grace period over' : 'grace period');
      case 'clock':
        return log.warn({ leap_ms: inMs(event.leapS) }, 'the clock has leapt');
      case 'dropped':
        return log.debug({ admission: event.admission, what: event.what }, 'word of an ended lease dropped');
      default:
        requestLine(log, event);
    }
  };
}

type RequestEvent = Extract<LeaseEvent, { readonly request: string }>;

function requestLine(log: Log, event: RequestEvent): void {
  const { request: request_id, kind } = event;
  switch (event.kind) {
    case 'assigned': {
      const { assignment, attempt, waitedS, traceparent } = event;
      const trace_id = traceIdOf(traceparent);
      return log.info(
        {
          ...{ request_id, attempt, ...(trace_id === undefined ? {} : { trace_id }) },
          ...{ ...assignmentFields(assignment), waited_ms: inMs(waitedS) },
        },
        'request assigned',
      );
    }
    case 'ended': {
      const { error, attempts, ranS } = event;
      const fields = { request_id, attempts, ran_ms: inMs(ranS) };
      return error === undefined
        ? log.info(fields, 'request ended')
        : log.warn({ ...fields, ...errorFields(error) }, 'request failed');
    }
    case 'returned': {
      const { admission, attempt, error } = event;
      return log.warn({ request_id, admission, attempt, ...errorFields(error) }, 'request returned');
    }
    case 'refused':
      return log.warn(
        { request_id, retry_after_s: event.retryAfterS, ...errorFields(event.error) },
        'request refused',
      );
    case 'adopted':
      return log.debug({ request_id, ...assignmentFields(event.assignment) }, 'request adopted');
    case 'stage':
      return log.debug({ request_id, admission: event.admission, stage: event.stage }, 'stage done');
    default:
      log.debug({ request_id }, `request ${kind}`);
  }
}
