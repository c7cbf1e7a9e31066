/** Spans of requests, where the program has registered an OpenTelemetry SDK (docs/observability.md). */
export { scheduleSpans } from './leases.js';
export { endSpan, parentOf, traceparentOf, tracerOf } from './spans.js';
