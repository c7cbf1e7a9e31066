/**
 * Spans by @opentelemetry/api. Whoever wants them registers an SDK before clients and schedulers are opened; where there is
 * none nothing is made, kept or sent.
 */
import {
  context,
  isSpanContextValid,
  ProxyTracerProvider,
  ROOT_CONTEXT,
  SpanStatusCode,
  trace,
  TraceFlags,
  type Context,
  type Span,
  type Tracer,
} from '@opentelemetry/api';
import { isDualPathError } from '../errors/index.js';

/** Of the SDK that has been registered. */
export function tracerOf(): Tracer | undefined {
  const provider = trace.getTracerProvider();
  return provider instanceof ProxyTracerProvider
    ? provider.getDelegateTracer('dualpath')
    : provider.getTracer('dualpath');
}

const pattern = /^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?$/;

/** The context that a W3C traceparent stands for; what cannot be read is none (as the recommendation has it). */
export function parentOf(traceparent: string | undefined): Context {
  if (traceparent === undefined) return context.active();
  const [, traceId = '', spanId = '', flags = '00'] = pattern.exec(traceparent) ?? [];
  const spanContext = {
    traceId,
    spanId,
    traceFlags: parseInt(flags, 16) & TraceFlags.SAMPLED,
    isRemote: true,
  };
  return isSpanContextValid(spanContext) ? trace.setSpanContext(ROOT_CONTEXT, spanContext) : ROOT_CONTEXT;
}

export function traceparentOf(span: Span): string {
  const { traceId, spanId, traceFlags } = span.spanContext();
  return `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, '0')}`;
}

/** @param error why, if not well */
export function endSpan(span: Span, error?: Error): void {
  if (error) {
    span.setStatus({ code: SpanStatusCode.ERROR, message: error.message });
    span.setAttribute('error.type', isDualPathError(error) ? error.code : error.name);
  }
  span.end();
}
