/** The scheduler over gRPC: requests, tokens, engines that leave, drain and die, restarts. */
import { afterEach, describe, expect, it } from 'vitest';
import { LeaseLedger } from '../../src/leases/index.js';
import type { SchedulerServer } from '../../src/serve/index.js';
import {
  capacityOf,
  endpointOf,
  FakeEngine,
  model,
  openClient,
  openServer,
  request,
  until,
} from './support.js';

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

describe('engines and schedulers that come and go', () => {
  it('a request goes on at another engine when one is started anew, after the tokens delivered', async () => {
    const server = closes(await openServer({ leaseS: 5 }));
    const at = [endpointOf(server)];
    const prefill = closes(new FakeEngine('prefill', 'p1', at));
    const first = closes(new FakeEngine('decode', 'd1', at));
    first.idle = true;
    const client = closes(openClient(at));
    const submitted = client.submit({ ...request, key: 'a' });
    await until(() => first.taken.length === 1, 'the first engine has it');
    first.client.tokens(first.taken[0]!.admission, 0, Uint32Array.of(100));
    await until(() => submitted.received === 1, 'its first token is delivered');
    await first.close();
    const second = closes(new FakeEngine('decode', 'd2', at));
    await submitted.ended;
    expect(submitted.receivedTokens).toEqual([100, 101, 102]);
    expect(await submitted.ended).toMatchObject({ attempts: 2, decodeEngine: 'd2' });
    expect(second.taken).toHaveLength(1);
    expect(prefill.taken).toHaveLength(2);
  });

  it('a leader tells of an engine that died and was started anew: its request goes on at once', async () => {
    const { server, at, decode } = await cluster({ leaseS: 60 });
    decode.idle = true;
    const submitted = closes(openClient(at)).submit(request);
    await until(() => decode.taken.length === 1, 'it has one');
    const { admission } = decode.taken[0]!;
    decode.client.engineLost('d1');
    expect(decode.client.details(admission)).toBeUndefined();
    await until(() => server.ledger!.engine('d1') === undefined, 'the scheduler knows');
    await until(() => server.ledger!.statistics().returning === 0, 'the other engine has let go');
    decode.idle = false;
    decode.client.engineStarted('d1');
    expect(await submitted.ended).toMatchObject({ attempts: 2, decodeEngine: 'd1', tokens: 3 });
    decode.client.engineStarted('d1'); // of one that was not known to have died
    await until(() => server.ledger!.engine('d1')?.group.open === true, 'it is there again');
    expect(await closes(openClient(at, 'other')).submit(request).ended).toMatchObject({ attempts: 1 });
    decode.client.engineStarted('nobody');
    expect(server.ledger!.statistics()).toMatchObject({ engines: 2, completed: 2, failed: 0 });
  });

  it('an engine drains: it ends what it has and gets no more', async () => {
    const { at, decode } = await cluster({ leaseS: 5 });
    decode.idle = true;
    const client = closes(openClient(at));
    const submitted = client.submit(request);
    await until(() => decode.taken.length === 1, 'it has one');
    const drained = decode.client.drain();
    const later = client.submit(request);
    await later.accepted;
    decode.idle = false;
    decode.finish(decode.taken[0]!);
    await drained;
    expect((await submitted.ended).decodeEngine).toBe('d1');
    closes(new FakeEngine('decode', 'd2', at));
    expect((await later.ended).decodeEngine).toBe('d2');
  });

  it('a restarted scheduler has its leases from the engines and its queue from the clients', async () => {
    const { server, at, decode } = await cluster({ leaseS: 5 });
    decode.idle = true;
    const client = closes(openClient(at));
    const running = client.submit({ ...request, key: 'running' });
    await until(() => decode.taken.length === 1, 'one runs');
    const { admission } = decode.taken[0]!;
    decode.client.tokens(admission, 0, Uint32Array.of(100));
    await until(() => running.received === 1, 'a token is delivered');
    const { port } = server.address;
    await server.close();
    const queued = client.submit({ ...request, key: 'queued' });
    const again = closes(await openServer({ leaseS: 5, graceS: 2 }, { listen: { host: '127.0.0.1', port } }));
    await until(() => again.ledger!.statistics().leased === 1, 'the lease is back');
    await until(() => again.ledger!.statistics().parked === 1, 'the queued one is back');
    expect(again.ledger!.statistics()).toMatchObject({ grace: true, assigned: 0 });
    decode.finish(decode.taken[0]!);
    expect(await running.ended).toMatchObject({ attempts: 1, tokens: 3 });
    expect(running.receivedTokens).toEqual([100, 101, 102]);
    decode.idle = false;
    await queued.ended;
    expect(decode.taken[1]!.admission).toBeGreaterThan(admission + 1000);
  });

  it('an engine that is not heard loses its leases, and what it says later is dropped', async () => {
    const { server, at, decode } = await cluster({ leaseS: 0.3 });
    decode.idle = true;
    const client = closes(openClient(at));
    const submitted = client.submit({ ...request, signal: AbortSignal.timeout(60_000) });
    await until(() => decode.taken.length === 1, 'it has one');
    client.submit({ ...request, key: 'cancelled' }).cancel();
    await until(() => server.ledger!.statistics().failed === 1, 'the other is cancelled');
    submitted.cancel();
    await expect(submitted.ended).rejects.toMatchObject({ code: 'CANCELLED' });
    await until(() => decode.client.leases === 0, 'it was told');
  });

  it('a request submitted twice on one stream has no token repeated', () => {
    const sent: number[] = [];
    const nothing = (): void => undefined;
    const ledger = new LeaseLedger(
      {
        ...{
          model,
          policy: 'split',
          blockTokens: 4,
          blockBytes: 1,
          decodeSpareBlocks: 1,
          seed: 1,
          epoch: 1,
          graceS: 0,
        },
      },
      {
        ...{ revoke: nothing, resend: nothing, drained: nothing, accepted: nothing, refused: nothing },
        ...{ progress: nothing, ended: nothing, assign: nothing },
        tokens: (_client, _key, first, tokens) => tokens.forEach((__, i) => sent.push(first + i)),
      },
    );
    ledger.at(0);
    for (const role of ['prefill', 'decode'] as const) {
      const engines = [{ capacity: capacityOf(role, role), incarnation: 1, addresses: {} }];
      ledger.hello({ group: role, model, engines, held: [] });
      ledger.fetch(role, [], 8);
    }
    ledger.attach('front');
    const submission = { ...request, key: 'a', model };
    ledger.submit('front', submission);
    ledger.schedule();
    const { admission } = [...ledger.requests()][0]!.assignment!;
    ledger.tokens('decode', admission, 0, Uint32Array.of(1, 2));
    ledger.submit('front', submission);
    ledger.tokens('decode', admission, 2, Uint32Array.of(3));
    expect(sent).toEqual([0, 1, 2]);
    ledger.detach('front');
    ledger.attach('front');
    ledger.submit('front', { ...submission, received: Uint32Array.of(1, 2) });
    expect(sent).toEqual([0, 1, 2, 2]);
  });
});
