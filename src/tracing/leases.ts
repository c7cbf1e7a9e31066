import { SpanKind, type Tracer } from '@opentelemetry/api';
import type { LeaseEvent } from '../leases/index.js';
import { parentOf } from './spans.js';

/** A span of each assignment: from the submission, or the loss of the engines before, until the engines are found. */
export function scheduleSpans(tracer: Tracer): (event: LeaseEvent) => void {
  /** When requests that run no longer were taken back, by name. */
  const returnedMs = new Map<string, number>();
  return (event) => {
    if (event.kind === 'returned') returnedMs.set(event.request, Date.now());
    else if (event.kind === 'ended') returnedMs.delete(event.request);
    else if (event.kind === 'assigned') {
      const { request, attempt, assignment, waitedS, traceparent } = event;
      const startTime = returnedMs.get(request) ?? Date.now() - waitedS * 1000;
      returnedMs.delete(request);
      const attributes = {
        'dualpath.request': request,
        'dualpath.attempt': attempt,
        'dualpath.prefill_engine': assignment.prefillEngine,
        'dualpath.decode_engine': assignment.decodeEngine,
        'dualpath.side': assignment.side,
      };
      const options = { kind: SpanKind.INTERNAL, startTime, attributes };
      tracer.startSpan('dualpath schedule', options, parentOf(traceparent)).end();
    }
  };
}
