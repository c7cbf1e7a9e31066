/** Schedulers that find out by etcd which of them leads. Two seconds are the shortest lease that etcd grants. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { EtcdMembership } from '../../src/etcd/index.js';
import type { Leadership } from '../../src/serve/index.js';
import { endpointOf, FakeEngine, openClient, openServer, request, until } from '../serve/support.js';
import { Etcd } from './support.js';

const patienceMs = 30_000;
let etcd: Etcd;
beforeAll(async () => {
  etcd = await Etcd.start();
}, patienceMs);
afterAll(() => etcd.close());

const closing: { close(): Promise<void> }[] = [];
const closes = <T extends { close(): Promise<void> }>(one: T): T => {
  closing.push(one);
  return one;
};
afterEach(async () => {
  for (const one of closing.splice(0).reverse()) await one.close();
});

function member(name: string, advertise: string, ttlS = 2): EtcdMembership {
  return closes(new EtcdMembership({ endpoints: [etcd.endpoint], name, advertise, ttlS }));
}

const signal = new AbortController().signal;

describe('EtcdMembership', () => {
  it(
    'one leads, the others know where, and the next has a higher epoch',
    async () => {
      const all = ['a:1', 'b:1', 'c:1'].map((address) => member('one', address));
      const stop = new AbortController();
      const leads: { index: number; leadership: Leadership }[] = [];
      const waiting = all.map(async (one, index) => {
        const leadership = await one.lead(stop.signal).catch(() => undefined);
        if (leadership) leads.push({ index, leadership });
      });
      await until(() => leads.length === 1, 'one leads');
      const first = leads[0]!;
      const others = all.filter((_, index) => index !== first.index);
      const address = ['a:1', 'b:1', 'c:1'][first.index];
      await until(() => others.every((one) => one.leader() === address), 'the others know where');
      expect(leads).toHaveLength(1);
      expect(first.leadership.epoch).toBeGreaterThan(Date.now() / 1000 - 60);
      await first.leadership.release();
      expect(first.leadership.lost.aborted).toBe(true);
      await until(() => leads.length === 2, 'another leads');
      expect(leads[1]!.leadership.epoch).toBeGreaterThan(first.leadership.epoch);
      stop.abort();
      await Promise.all(waiting);
      await leads[1]!.leadership.release();
    },
    patienceMs,
  );

  it(
    'epochs grow within a second, too',
    async () => {
      const one = member('epochs', 'a:1');
      const epochs: number[] = [];
      for (let i = 0; i < 3; i++) {
        const leadership = await one.lead(signal);
        epochs.push(leadership.epoch);
        await leadership.release();
      }
      expect(epochs).toEqual([...new Set(epochs)].sort((a, b) => a - b));
    },
    patienceMs,
  );

  it(
    'who cannot reach etcd leads no longer than its lease',
    async () => {
      const own = closes(await Etcd.start());
      const one = closes(
        new EtcdMembership({ endpoints: [own.endpoint], name: 'x', advertise: 'a:1', ttlS: 2 }),
      );
      const first = await one.lead(signal);
      await own.kill();
      await until(() => first.lost.aborted, 'it is lost');
      await first.release();
      await expect(one.lead(AbortSignal.timeout(100))).rejects.toThrow();
    },
    patienceMs,
  );
});

describe('two schedulers', () => {
  it(
    'requests, and engines, go on at the other one when the leader dies',
    async () => {
      const members: EtcdMembership[] = [];
      const epochs: (number | undefined)[] = [];
      // etcd's lease, and the engines' longest wait before they look again, are shorter than theirs by far.
      const open = async (graceS: number): Promise<Awaited<ReturnType<typeof openServer>>> =>
        closes(
          await openServer(
            { leaseS: 30, graceS },
            {
              membership: ({ host, port }) => {
                members.push(member('two', `${host}:${port}`));
                return members.at(-1)!;
              },
              onLeading: (epoch) => epochs.push(epoch),
            },
          ),
        );
      const first = await open(0);
      await until(() => first.ledger !== undefined, 'the first leads');
      const second = await open(8);
      const at = [endpointOf(second), endpointOf(first)]; // found, whichever is asked first
      closes(new FakeEngine('prefill', 'p1', at));
      const decode = closes(new FakeEngine('decode', 'd1', at));
      const client = closes(openClient(at));
      await client.submit({ ...request, key: 'a' }).ended;
      decode.idle = true;
      const running = client.submit({ ...request, key: 'b' });
      await until(() => decode.taken.length === 2, 'one runs');
      await members[0]!.close(); // as a killed process: it renews nothing and takes nothing back
      await until(() => second.ledger?.statistics().leased === 1, 'the second has its lease', 25_000);
      expect(first.ledger).toBeUndefined();
      decode.finish(decode.taken[1]!);
      expect(await running.ended).toMatchObject({ attempts: 1, tokens: 3 });
      const [led, , leads] = epochs;
      expect(leads).toBeGreaterThan(led!);
      expect(epochs).toHaveLength(3);
    },
    2 * patienceMs,
  );
});
