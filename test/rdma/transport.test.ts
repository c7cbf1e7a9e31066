import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { ControlNode } from '../../src/control/index.js';
import { DualPathError } from '../../src/errors/index.js';
import {
  defaultTrafficClasses,
  PathExchange,
  RdmaTransport,
  type RdmaTransportOptions,
} from '../../src/rdma/index.js';
import { FakeFabric, FakeHalf } from './fake-half.js';

const closing: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

interface End {
  readonly node: ControlNode;
  readonly half: FakeHalf;
  readonly transport: RdmaTransport;
}

const timing = { pingMs: 20, deadMs: 1000, goneMs: 300, firstRedialMs: 5 };
const eventually = { timeout: 15_000, interval: 2 };

async function end(
  fabric: FakeFabric,
  name: string,
  options: Partial<RdmaTransportOptions> = {},
): Promise<End> {
  const listen = { host: '127.0.0.1', port: 0 };
  const node = await ControlNode.open({ name, identity: '', listen, timing });
  const half = new FakeHalf(fabric, name, options.connections?.maxConnections);
  const transport = new RdmaTransport({
    name,
    identity: 'model',
    runtime: { register: () => undefined, unregister: () => undefined },
    native: half,
    exchange: new PathExchange(node),
    classes: defaultTrafficClasses,
    gidIndexes: [1, 3],
    ...options,
    connections: { firstBackOffMs: 2, longestBackOffMs: 20, ...options.connections },
  });
  half.wake = () => transport.takeRecords();
  node.listen({ lost: (peer) => transport.forget(peer) });
  closing.push(async () => {
    await transport.close();
    await node.close();
  });
  return { node, half, transport };
}

async function pair(
  options: Partial<RdmaTransportOptions> = {},
): Promise<{ fabric: FakeFabric; a: End; b: End }> {
  const fabric = new FakeFabric();
  const a = await end(fabric, 'a', options);
  const b = await end(fabric, 'b', options);
  await a.node.connect(b.node.address!);
  await vi.waitFor(() => expect(b.node.reachable('a')).toBe(true), eventually);
  return { fabric, a, b };
}

describe('RdmaTransport', () => {
  it.each([
    ['the first', 'a', 'b'],
    ['the other', 'b', 'a'],
  ] as const)('connects on first use by %s, once for both directions', async (_, from, to) => {
    const both = await pair();
    expect(both.a.half.opened + both.b.half.opened).toBe(0);
    const peers = await Promise.all([both[from].transport.acquire(to), both[from].transport.acquire(to)]);
    expect(peers).toEqual([1, 1]);
    expect(both[from].half.way()).toBeDefined();
    expect(await both[to].transport.acquire(from)).toBe(1);
    expect(both[to].half.way()).toBeDefined();
    expect([both.a.half.opened, both.b.half.opened]).toEqual([1, 1]);
    expect(both.a.half.peers).toEqual([{ name: 'b', memory: { of: 'b', identity: 0 } }]);
    expect(both.a.transport.facts()).toEqual({
      transport: 'verbs',
      device: 'fake0/1',
      trafficClass: 'kv (DSCP 10)',
      emulated: true,
      sentBytes: 1000,
      sentBytesTo: [{ peer: 'b', bytes: 1000 }],
      connections: 1,
      rebuilt: 0,
      longestOutageMs: 0,
    });
  });

  it('rebuilds what the path broke, whichever side saw it; nobody is given a way that does not carry', async () => {
    const { a, b } = await pair();
    for (const [i, broken] of [a, b, a, b].entries()) {
      await Promise.all([a.transport.acquire('b'), b.transport.acquire('a')]);
      expect([a.half.way(), b.half.way()]).not.toContain(undefined);
      broken.half.break('remote');
      await sleep(i); // at once, or when some of it has been dealt with
      await Promise.all([a.transport.acquire('b'), b.transport.acquire('a')]);
      expect([a.half.way(), b.half.way()]).not.toContain(undefined);
    }
    expect(a.half.most).toBe(1);
    expect(a.transport.facts()).toMatchObject({ connections: 5, rebuilt: 4, sentBytes: 5000 });
  });

  it('gives up on a local fault, on both sides, with its cause', async () => {
    const { a, b } = await pair();
    await Promise.all([a.transport.acquire('b'), b.transport.acquire('a')]);
    a.half.break('local');
    await expect(a.transport.acquire('b')).rejects.toThrow("no RDMA connection to 'b': local trouble");
    b.half.refuse = new DualPathError('MEMORY_LIMIT', 'RLIMIT_MEMLOCK is 64 KiB');
    const { a: c, b: d } = await pair();
    d.half.refuse = b.half.refuse;
    await expect(c.transport.acquire('b')).rejects.toMatchObject({
      code: 'MEMORY_LIMIT',
      message: "no RDMA connection to 'b': 'b': RLIMIT_MEMLOCK is 64 KiB",
    });
    await expect(d.transport.acquire('a')).rejects.toMatchObject({ code: 'MEMORY_LIMIT' });
  });

  it('tries the next GID where one does not work', async () => {
    const { fabric, a, b } = await pair();
    fabric.deadGid = 1;
    await a.transport.acquire('b');
    expect(a.half.way()?.gidIndex).toBe(3);
    expect(b.half.way()?.gidIndex).toBe(3);
  });

  it('refuses an engine of another model, naming both', async () => {
    const fabric = new FakeFabric();
    const a = await end(fabric, 'a', { identity: 'model A' });
    const b = await end(fabric, 'b', { identity: 'model B' });
    await a.node.connect(b.node.address!);
    await expect(a.transport.acquire('b')).rejects.toThrow(
      /the peer's model and layout is 'model A', this side's 'model B'/,
    );
  });

  it('closes what is idle, but nothing that either side holds', async () => {
    const { a, b } = await pair({ connections: { idleMs: 30 } });
    await b.transport.acquire('a');
    await sleep(100);
    expect(b.half.way()).toBeDefined(); // the other side holds it, this one makes it
    b.transport.release('a');
    await vi.waitFor(() => expect([a.half.open_, b.half.open_]).toEqual([[], []]), eventually);
    await a.transport.acquire('b');
    expect(a.half.way()).toBeDefined();
  });

  it('makes room for a connection by closing the one unused for longest, not one that is held', async () => {
    const fabric = new FakeFabric();
    const a = await end(fabric, 'a', { connections: { maxConnections: 2 } });
    const others = await Promise.all(['b', 'c', 'd', 'e'].map((name) => end(fabric, name)));
    for (const { node } of others) await a.node.connect(node.address!);
    await a.transport.acquire('b');
    a.transport.release('b');
    await a.transport.acquire('c'); // held on
    const d = async (): Promise<void> => void (await a.transport.acquire('d'));
    await vi.waitFor(d, eventually); // there is room once b's has drained
    expect(others[0]!.half.way()).toBeUndefined();
    expect(others[1]!.half.way()).toBeDefined();
    await expect(a.transport.acquire('e')).rejects.toMatchObject({ code: 'CAPACITY_EXHAUSTED' });
    expect(a.half.most).toBe(2);
  });

  it('ends whoever waits when it is cancelled, when the peer is lost, when it is closed', async () => {
    const { a, b } = await pair({ handshakeMs: 60_000 });
    b.half.refuse = new DualPathError('CAPACITY_EXHAUSTED', 'no room');
    const stop = new AbortController();
    const cancelled = a.transport.acquire('b', stop.signal);
    stop.abort();
    await expect(cancelled).rejects.toMatchObject({ code: 'CANCELLED' });
    const closed = b.transport.acquire('a');
    const lost = a.transport.acquire('b');
    await Promise.all([
      expect(closed).rejects.toMatchObject({ code: 'CLOSED' }),
      expect(lost).rejects.toMatchObject({ code: 'PEER_LOST' }),
      b.transport.close().then(() => b.node.close()),
    ]);
    await expect(b.transport.acquire('a')).rejects.toMatchObject({ code: 'CLOSED' });
    expect(b.half.open_).toEqual([]);
  });

  it('always comes to a way that carries again, whatever breaks when', async () => {
    const step = fc.record({
      what: fc.constantFrom('break a', 'break b', 'acquire a', 'acquire b', 'port', 'wait'),
      ms: fc.constantFrom(0, 0, 1, 3),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 25 }), async (steps) => {
        const { a, b } = await pair({ handshakeMs: 500 });
        const acquiring: Promise<unknown>[] = [];
        for (const { what, ms } of steps) {
          if (what === 'break a') a.half.break('remote');
          if (what === 'break b') b.half.break('remote');
          if (what === 'acquire a') acquiring.push(a.transport.acquire('b'));
          if (what === 'acquire b') acquiring.push(b.transport.acquire('a'));
          if (what === 'port') a.half.portUp();
          if (ms > 0) await sleep(ms);
        }
        await Promise.all([...acquiring, a.transport.acquire('b'), b.transport.acquire('a')]);
        await vi.waitFor(() => {
          expect([a.half.way(), b.half.way()]).not.toContain(undefined);
        }, eventually);
        expect([a.half.most, b.half.most]).toEqual([1, 1]);
        for (const close of closing.splice(0).reverse()) await close();
      }),
      { numRuns: 40 },
    );
  }, 60_000);
});
