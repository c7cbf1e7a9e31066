/** The scheduler over gRPC: requests, tokens, engines that leave, drain and die, restarts. */
import { afterEach, describe, expect, it } from 'vitest';
import type { SchedulerServer } from '../../src/serve/index.js';
import { endpointOf, FakeEngine, openClient, openServer, request, until } from './support.js';

const closing: { close(): Promise<void> }[] = [];
const closes = <T extends { close(): Promise<void> }>(one: T): T => {
  closing.push(one);
  return one;
};

afterEach(async () => {
  for (const one of closing.splice(0).reverse()) await one.close();
});

async function cluster(
  leases: Parameters<typeof openServer>[0] = {},
): Promise<{ server: SchedulerServer; at: string[]; prefill: FakeEngine; decode: FakeEngine }> {
  const server = closes(await openServer(leases));
  const at = [endpointOf(server)];
  const prefill = closes(new FakeEngine('prefill', 'p1', at));
  const decode = closes(new FakeEngine('decode', 'd1', at));
  return { server, at, prefill, decode };
}

describe('SchedulerServer', () => {
  it('hands requests to engines and their tokens and ends to clients', async () => {
    const { at, prefill, decode } = await cluster();
    const client = closes(openClient(at));
    const payload = Uint8Array.of(1, 2, 3);
    const progress: unknown[] = [];
    const submitted = client.submit({
      ...request,
      key: 'a',
      payload,
      progress: true,
      traceparent: '00-trace',
      onProgress: (news) => progress.push(news),
    });
    await submitted.accepted;
    const seen: number[] = [];
    for await (const { first, tokens } of submitted.tokens()) {
      expect(first).toBe(seen.length);
      seen.push(...tokens);
    }
    expect(seen).toEqual([100, 101, 102]);
    expect(await submitted.ended).toEqual({ attempts: 1, tokens: 3, decodeEngine: 'd1' });
    expect(progress[0]).toMatchObject({ prefillEngine: 'p1', decodeEngine: 'd1' });
    expect(progress.at(-1)).toEqual({ stages: ['request'] });
    for (const engine of [prefill, decode]) expect(engine.taken).toMatchObject([{ request: 'front/a' }]);
    expect(prefill.client.peer('d1')).toMatchObject({ addresses: { control: 'd1:7001' } });
    await until(() => prefill.client.leases + decode.client.leases === 0, 'leases ended');
  });

  it('runs a thousand requests, each once', async () => {
    const { at, decode, server } = await cluster();
    const client = closes(openClient(at));
    const all = Array.from({ length: 1000 }, (_, i) => client.submit({ ...request, key: `k${i}` }));
    const outcomes = await Promise.all(all.map(({ ended }) => ended));
    expect(outcomes.every(({ tokens }) => tokens === 3)).toBe(true);
    expect(new Set(decode.taken.map(({ request: name }) => name)).size).toBe(1000);
    await until(() => server.ledger!.statistics().retained === 0, 'outcomes acknowledged');
    expect(server.ledger!.statistics()).toMatchObject({ completed: 1000, leased: 0, payloadBytes: 0 });
  });
});
