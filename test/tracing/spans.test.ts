/** Spans of a request through a scheduler's service, as an SDK in memory has them; and none where there is none. */
import { trace } from '@opentelemetry/api';
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import { afterEach, describe, expect, it } from 'vitest';
import { parentOf, tracerOf } from '../../src/tracing/index.js';
import { endpointOf, FakeEngine, openClient, openServer, request, until } from '../serve/support.js';

const closing: { close(): Promise<void> }[] = [];
const closes = <T extends { close(): Promise<void> }>(one: T): T => {
  closing.push(one);
  return one;
};
afterEach(async () => {
  for (const one of closing.splice(0).reverse()) await one.close();
  trace.disable();
});

const traceId = '0af7651916cd43dd8448eb211c80319c';
const traceparent = `00-${traceId}-b7ad6b7169203331-01`;

function record(): InMemorySpanExporter {
  const exporter = new InMemorySpanExporter();
  trace.setGlobalTracerProvider(
    new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }),
  );
  return exporter;
}

describe('spans', () => {
  it('of a request from submit to the last stage, one trace with the caller', async () => {
    const exporter = record();
    const server = closes(await openServer());
    const at = [endpointOf(server)];
    closes(new FakeEngine('prefill', 'p1', at));
    closes(new FakeEngine('decode', 'd1', at));
    await closes(openClient(at)).submit({ ...request, key: 'a', traceparent }).ended;
    await until(() => exporter.getFinishedSpans().length === 4, 'four spans');
    const spans = new Map(exporter.getFinishedSpans().map((span) => [span.name, span]));
    expect([...spans.keys()].sort()).toEqual([
      ...['dualpath decode', 'dualpath prefill', 'dualpath request', 'dualpath schedule'],
    ]);
    const own = spans.get('dualpath request')!;
    expect(own.parentSpanContext?.spanId).toBe('b7ad6b7169203331');
    expect(own.attributes).toMatchObject({ 'dualpath.request': 'front/a', 'dualpath.attempts': 1 });
    for (const [name, span] of spans) {
      expect(span.spanContext().traceId).toBe(traceId);
      if (name !== 'dualpath request') expect(span.parentSpanContext?.spanId).toBe(own.spanContext().spanId);
      expect(span.status.code).toBe(0);
    }
    const stages = (name: string): string[] => spans.get(name)!.events.map((event) => event.name);
    expect(stages('dualpath prefill')).toEqual(['prefill-read', 'prefill']);
    expect(stages('dualpath decode')).toEqual(['decode-read', 'decode-buffer', 'request']);
    expect(spans.get('dualpath schedule')!.attributes).toMatchObject({ 'dualpath.prefill_engine': 'p1' });
  });

  it('say what went wrong, and have one of each attempt', async () => {
    const exporter = record();
    const server = closes(await openServer({ leaseS: 5 }));
    const at = [endpointOf(server)];
    closes(new FakeEngine('prefill', 'p1', at));
    const first = closes(new FakeEngine('decode', 'd1', at));
    first.idle = true;
    const submitted = closes(openClient(at)).submit(request);
    await until(() => first.taken.length === 1, 'it runs');
    first.client.engineLost('d1');
    closes(new FakeEngine('decode', 'd2', at));
    await submitted.ended;
    const names = (): string[] => exporter.getFinishedSpans().map(({ name }) => name);
    await until(() => names().filter((name) => name === 'dualpath decode').length === 2, 'both attempts');
    const [lost, done] = exporter.getFinishedSpans().filter(({ name }) => name === 'dualpath decode');
    expect(lost!.status).toMatchObject({ code: 2 });
    expect(lost!.attributes).toMatchObject({ 'error.type': 'PEER_LOST', 'dualpath.attempt': 1 });
    expect(done!.attributes).toMatchObject({ 'dualpath.engine': 'd2', 'dualpath.attempt': 2 });
    expect(names().filter((name) => name === 'dualpath schedule')).toHaveLength(2);
  });

  it('are not made without an SDK, and the caller’s context goes on to the engines as it is', async () => {
    expect(tracerOf()).toBeUndefined();
    const server = closes(await openServer());
    const at = [endpointOf(server)];
    closes(new FakeEngine('prefill', 'p1', at));
    const decode = closes(new FakeEngine('decode', 'd1', at));
    decode.idle = true;
    closes(openClient(at)).submit({ ...request, traceparent });
    await until(() => decode.taken.length === 1, 'it runs');
    expect(decode.client.details(decode.taken[0]!.admission)!.traceparent).toBe(traceparent);
  });

  it.each(['', 'nonsense', `00-${'0'.repeat(32)}-b7ad6b7169203331-01`, '00-1-2-3'])(
    "a traceparent '%s' is none",
    (text) => {
      expect(trace.getSpanContext(parentOf(text))).toBeUndefined();
    },
  );
});
