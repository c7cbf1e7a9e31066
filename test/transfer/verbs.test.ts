/** Engines over verbs, on the strict stub provider: emulated, as its name says. */
import { describe, expect, it } from 'vitest';
import { callNative, native, type NativeVerbsOptions } from '../../src/binding/index.js';
import type { Descriptor, TransferEngine } from '../../src/transfer/index.js';
import { errorOf, openEngine, plainMemory } from './support.js';
import { connect, introduce, openFabric, path, VerbsEnd } from './verbs-support.js';

const slots = 64;

function openPair(options: Partial<NativeVerbsOptions> = {}) {
  const fabric = openFabric();
  const [from, to] = [plainMemory(slots), plainMemory(slots)];
  const ends = [from, to].map((memory, i) => {
    const engine = openEngine();
    engine.addGeometry(memory.geometry);
    engine.setSlots(
      0,
      Array.from({ length: slots }, (_, slot) => slot),
    );
    return new VerbsEnd(engine, { device: `stub${i}`, provider: fabric, ...options });
  });
  const [a, b] = ends as [VerbsEnd, VerbsEnd];
  from.bytes.forEach((_, i, bytes) => (bytes[i] = (i * 31) & 0xff));
  introduce(a, b);
  connect(a, b);
  return { fabric, a, b, from: from.bytes, to: to.bytes };
}

const send = (peer: number, counter?: number): Descriptor => ({
  op: 'send',
  peer,
  from: 0,
  to: 0,
  fromSlots: 0,
  toSlots: 0,
  blocks: slots,
  firstBlock: 0,
  tokenBegin: 0,
  tokenEnd: slots * 4,
  layers: 2,
  signals: counter === undefined ? [] : [{ counter, value: 1, remote: true }],
});

const reached = (engine: TransferEngine, counter: number, value: number) =>
  engine.submit([{ op: 'nop', waits: [{ counter, value }] }]).done;

describe('the verbs transport (emulated provider)', () => {
  it('says what it is', () => {
    const { a } = openPair();
    const facts = a.transport.facts();
    expect(facts).toMatchObject({
      ...{ transport: 'verbs', emulated: true, forkSafe: true, device: 'stub0', port: 1, gidIndex: 2 },
      ...{ linkLayer: 'ethernet', mtuBytes: 4096, active: true },
    });
    expect(facts.provider).toContain('emulated');
    expect(facts.gid).toBe('00000000000000000000ffff0a000001');
  });

  it('moves every byte, and raises the counter behind them', async () => {
    const { fabric, a, b, from, to } = openPair();
    const arrived = b.engine.takeCounters(1);
    const { done } = a.engine.submit([send(a.peer, b.engine.handle.counterHandle(arrived))]);
    await reached(b.engine, arrived, 2);
    expect(Buffer.compare(to, from)).toBe(0);
    expect((await done).bytesMoved).toBe(from.length);
    const { connections } = a.transport.statistics();
    expect(connections).toHaveLength(1);
    expect(connections[0]).toMatchObject({
      ...{ peer: a.peer, peerName: b.engine.name, trafficClass: 'kv', state: 'ready', inFlightBytes: 0 },
      ...{ sentBytes: from.length, chains: 2, postCalls: 2, completions: 2, errors: 0 },
    });
    expect(fabric.counters()).toMatchObject({ postCalls: 2, signalled: 2, writesWithImmediate: 2 });
    expect(b.transport.statistics().connections[0]).toMatchObject({ announcements: 2 });
    expect(a.engine.statistics()).toMatchObject({ sendBytes: from.length, sendSteps: 2 });
  });

  it('tells of the first cause, and goes on with a new connection of the same peer', async () => {
    const { fabric, a, b, from, to } = openPair();
    a.engine.namePeer(a.peer, "'b' over verbs, stub0 (emulated), class kv");
    fabric.failRequest(0, 2, 'RETRY_EXC_ERR');
    const error = await errorOf(a.engine.submit([send(a.peer)]).done);
    expect(error.code).toBe('PEER_LOST');
    expect(error.message).toMatch(/over verbs, stub0 \(emulated\), class kv: transport retries exhausted/);
    expect(a.events[0]).toMatchObject({ kind: 'broke', blame: 'remote', connection: a.connection });
    expect((await a.event('broke')).cause).toContain('transport retries exhausted (remote), queue pair');
    await a.event('drained');
    connect(a, b);
    await a.engine.submit([send(a.peer)]).done;
    expect(Buffer.compare(to, from)).toBe(0);
    expect(a.transport.statistics().closed).toMatchObject({ errors: 1 });
  });

  it('fails what is in flight when its engine closes, and then nothing is written', async () => {
    const { fabric, a, to } = openPair();
    fabric.pause(true);
    const { done } = a.engine.submit([send(a.peer)]);
    const error = errorOf(done);
    await a.engine.close();
    expect((await error).code).toBe('CLOSED');
    fabric.pause(false);
    await new Promise((resolve) => setTimeout(resolve, 5));
    expect(to.every((byte) => byte === 0)).toBe(true);
    expect((await errorOf(() => callNative(() => a.transport.open({ trafficClass: 'kv' })))).code).toBe(
      'CLOSED',
    );
  });

  it('gives everything back when its engines have closed', async () => {
    const { fabric, a, b } = openPair();
    expect(fabric.objects()).toBeGreaterThan(0);
    await Promise.all([a.engine.close(), b.engine.close()]);
    // Of each device its context, protection domain and completion queue: kept for the next engine.
    expect(fabric.objects()).toBe(2 * 3);
    const { verbsTransports } = native().liveObjects();
    expect(verbsTransports).toBeGreaterThanOrEqual(2); // what JavaScript holds
    expect(a.transport.takeEvents().every((event) => event.kind !== 'broke')).toBe(true);
  });

  it('has names for what is wrong', async () => {
    const { fabric, a } = openPair();
    const wrong = async (options: Partial<NativeVerbsOptions>): Promise<string> => {
      const engine = openEngine();
      const error = await errorOf(
        () => new VerbsEnd(engine, { device: 'stub0', provider: fabric, ...options }),
      );
      return `${error.code}: ${error.message}`;
    };
    expect(await wrong({ device: 'stub9' })).toMatch(/^INVALID_ARGUMENT: .*'stub9'; there are: stub0, stub1/);
    expect(await wrong({ port: 3 })).toMatch(/^INVALID_ARGUMENT: port 3 .* ports 1 to 1/);
    expect(await wrong({ gidIndex: 44 })).toMatch(/^INVALID_ARGUMENT: GID index 44 .* 0 to 3 allowed/);
    const { connection, half } = a.transport.open({ trafficClass: 'control' });
    const bad = async (changes: object): Promise<string> =>
      (
        await errorOf(() =>
          callNative(() => a.transport.connect(connection, { ...path(a.peer, half), ...changes })),
        )
      ).message;
    expect(await bad({ serviceLevel: 16 })).toContain('service level (SL) 16: 0 to 15 allowed');
    expect(await bad({ mtuBytes: 1500 })).toContain('path MTU 1500');
    expect(await bad({ timeout: 3 })).toContain('timeout 3: 17 to 31');
    expect(await bad({ half: { ...half, gid: 'fe80::1' } })).toContain('32 hexadecimal digits');
    expect(await bad({ half: { ...half, creditAddress: '12' } })).toContain('creditAddress');
    const memory = a.transport.memory();
    const geometry = { ...memory.geometries[0]!, slots: 1000 };
    const error = await errorOf(() =>
      callNative(() => a.transport.addPeer('x', { ...memory, geometries: [geometry] })),
    );
    expect(error.message).toMatch(/peer 'x' describes its memory wrongly: geometry: 1000 slots/);
  });
});
