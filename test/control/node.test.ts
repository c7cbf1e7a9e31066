import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { z } from 'zod';
import { encodeMessage } from '../../src/control/codec.js';
import { frameBytes, frameKinds, FrameReader } from '../../src/control/frame.js';
import { refusal } from '../../src/control/handshake.js';
import { ControlNode, type Address, type ControlNodeOptions } from '../../src/control/index.js';
import type { DualPathError } from '../../src/errors/index.js';
import { Relay } from './proxy.js';

const local = { host: '127.0.0.1', port: 0 };
const token = Buffer.from('a shared token of 32 bytes, or so');
/** Short, but no test depends on how short. */
const timing = {
  pingMs: 20,
  deadMs: 300,
  firstRedialMs: 5,
  longestRedialMs: 50,
  goneMs: 300,
  lostMs: 20_000,
};
const open: { close(): Promise<void> }[] = [];

afterEach(async () => {
  for (const one of open.splice(0).reverse()) await one.close();
});

class Tester {
  readonly got: number[] = [];
  readonly events: string[] = [];
  readonly node: ControlNode;

  constructor(node: ControlNode) {
    this.node = node;
    open.push(node);
    node.channel(
      'test',
      z.object({ number: z.int(), slots: z.instanceof(Uint32Array) }),
      (_, { number, slots }) => {
        expect(slots).toEqual(Uint32Array.of(number, number + 1));
        this.got.push(number);
      },
    );
    node.listen({
      up: (peer) => this.events.push(`up ${peer}`),
      lost: (peer, { code }: DualPathError) => this.events.push(`lost ${peer} ${code}`),
    });
  }
  say(to: string, number: number): boolean {
    return this.node.send(to, 'test', { number, slots: Uint32Array.of(number, number + 1) });
  }
}

async function node(name: string, options: Partial<ControlNodeOptions> = {}): Promise<Tester> {
  const opened = await ControlNode.open({
    name,
    identity: 'model',
    token,
    listen: local,
    timing,
    ...options,
  });
  return new Tester(opened);
}

async function relayTo(address: Address): Promise<Relay> {
  const relay = await Relay.to(address);
  open.push(relay);
  return relay;
}

const numbers = (count: number): number[] => Array.from({ length: count }, (_, i) => i);
const eventually = { timeout: 15_000, interval: 5 };

describe('ControlNode', () => {
  it('meets another by its address and carries messages both ways; the token is never sent', async () => {
    const [a, b] = [await node('a', { listen: local }), await node('b')];
    const relay = await relayTo(b.node.address!);
    expect(await a.node.connect(relay.address)).toBe('b');
    for (const number of numbers(200)) {
      a.say('b', number);
      await vi.waitFor(() => expect(b.node.knows('a')).toBe(true), eventually);
      b.say('a', number);
    }
    await vi.waitFor(() => expect([a.got, b.got]).toEqual([numbers(200), numbers(200)]), eventually);
    expect([a.events, b.events]).toEqual([['up b'], ['up a']]);
    expect(Buffer.concat(relay.seen).includes(token)).toBe(false);
    expect(a.say('c', 1)).toBe(false);
  });

  it('carries each message once and in order over sockets that are cut and links that go silent', async () => {
    // A cut looks as if the process were gone: however slow this machine is, it is found again in time.
    const patient = { timing: { ...timing, goneMs: timing.lostMs } };
    const [a, b] = [await node('a', patient), await node('b', patient)];
    const relay = await relayTo(b.node.address!);
    await a.node.connect(relay.address);
    await vi.waitFor(() => expect(b.node.knows('a')).toBe(true), eventually);
    let said = 0;
    const faults = fc.sample(fc.constantFrom('cut', 'cut', 'silence', 'nothing'), { numRuns: 12, seed: 7 });
    for (const fault of faults) {
      for (let i = 0; i < 30; i++, said++) {
        a.say('b', said);
        b.say('a', said);
        if (i === 15) {
          if (fault === 'cut') relay.cut();
          if (fault === 'silence') {
            relay.swallow = true;
            await sleep(350);
            relay.swallow = false;
          }
        }
        if (i % 5 === 0) await sleep(2);
      }
    }
    await vi.waitFor(() => expect([a.got, b.got]).toEqual([numbers(said), numbers(said)]), eventually);
    expect(relay.connections).toBeGreaterThan(3);
    expect([a.events, b.events]).toEqual([['up b'], ['up a']]);
  });

  it('does not take a dialler for dead that did not hear the end of its handshakes', async () => {
    const slow = { timing: { ...timing, firstRedialMs: 500, longestRedialMs: 500, handshakeMs: 150 } };
    const [a, b] = [await node('a', slow), await node('b')];
    const relay = await relayTo(b.node.address!);
    await a.node.connect(relay.address);
    relay.swallow = true;
    await sleep(400);
    relay.deafen = true;
    relay.swallow = false;
    const { connections } = relay;
    await vi.waitFor(() => expect(relay.connections).toBeGreaterThan(connections + 2), eventually);
    relay.deafen = false;
    a.say('b', 1);
    await vi.waitFor(() => expect(b.got).toEqual([1]), eventually);
    expect([a.events, b.events]).toEqual([['up b'], ['up a']]);
  });

  it('tells of a process that is gone soon, of one that ends in order at once, of one begun anew', async () => {
    const a = await node('a');
    const b = await node('b');
    const { port } = b.node.address!;
    const relay = await relayTo(b.node.address!);
    await a.node.connect(relay.address);
    await relay.close(); // as when the process of the other side is killed
    await vi.waitFor(() => expect(a.events).toEqual(['up b', 'lost b PEER_LOST']), eventually);
    expect(a.node.knows('b')).toBe(false);
    a.node.disconnect('b');

    const c = await node('c');
    expect(await a.node.connect(c.node.address!)).toBe('c');
    await vi.waitFor(() => expect(c.events).toEqual(['up a']), eventually);
    await c.node.close();
    await vi.waitFor(() => expect(a.events.at(-1)).toBe('lost c PEER_LOST'), eventually);

    await b.node.close();
    const again = await node('c', { listen: { host: '127.0.0.1', port } });
    a.node.disconnect('c');
    await a.node.connect(again.node.address!);
    await vi.waitFor(() => expect(a.events.at(-1)).toBe('up c'), eventually);
    expect(a.say('c', 5)).toBe(true);
    await vi.waitFor(() => expect(again.got).toEqual([5]), eventually);
  });

  it('begins a new session with a node that was killed and started again, and says that the old one is lost', async () => {
    const a = await node('a');
    const first = await node('b');
    const relay = await relayTo(first.node.address!);
    await a.node.connect(relay.address);
    // The relay hides the end of the first: only its successor says so.
    const port = first.node.address!.port;
    relay.swallow = true;
    await first.node.close();
    const second = await node('b', { listen: { host: '127.0.0.1', port } });
    relay.swallow = false;
    relay.cut();
    await vi.waitFor(() => expect(a.events).toEqual(['up b', 'lost b PEER_LOST', 'up b']), eventually);
    a.say('b', 9);
    await vi.waitFor(() => expect(second.got).toEqual([9]), eventually);
  });

  it('speaks with a node that was started again and dials, and what it says on hearing so is for the new one', async () => {
    const a = await node('a');
    const first = await node('b');
    const relay = await relayTo(a.node.address!);
    await first.node.connect(relay.address);
    await vi.waitFor(() => expect(a.events).toEqual(['up b']), eventually);
    relay.swallow = true; // its end is not seen
    await first.node.close();
    a.node.listen({ lost: () => void a.say('b', 1) });
    const second = await node('b');
    await second.node.connect(a.node.address!);
    await vi.waitFor(() => expect(a.events).toEqual(['up b', 'lost b PEER_LOST', 'up b']), eventually);
    expect(a.say('b', 2)).toBe(true);
    await vi.waitFor(() => expect(second.got).toEqual([1, 2]), eventually);
  });

  it('dials a node that was started again at another address, and no longer where it was', async () => {
    const a = await node('a');
    const first = await node('b');
    const relay = await relayTo(first.node.address!);
    await a.node.connect(relay.address);
    await relay.close();
    await vi.waitFor(() => expect(a.events).toEqual(['up b', 'lost b PEER_LOST']), eventually);
    const second = await node('b');
    expect(await a.node.connect(second.node.address!)).toBe('b');
    expect(a.say('b', 3)).toBe(true);
    await vi.waitFor(() => expect(second.got).toEqual([3]), eventually);
    await sleep(2 * timing.goneMs);
    expect(a.events).toEqual(['up b', 'lost b PEER_LOST', 'up b']);
  });

  it.each([
    [
      'another token',
      { token: Buffer.from('another token, as long as that one') },
      'UNAUTHENTICATED',
      'another token',
    ],
    ['no token', {}, 'UNAUTHENTICATED', 'give both the same token file'],
    [
      'another model',
      { token, identity: 'other' },
      'INVALID_ARGUMENT',
      "model and layout of 'a' are 'other', of 'b' 'model'",
    ],
    ['its own name', { token, name: 'b' }, 'INVALID_ARGUMENT', 'a name of its own'],
  ] as const)('is refused with %s', async (_, options, code, message) => {
    const b = await node('b');
    const a = new Tester(await ControlNode.open({ name: 'a', identity: 'model', timing, ...options }));
    const error = await a.node.connect(b.node.address!).catch((reason: unknown) => reason);
    expect(error).toMatchObject({ code });
    expect((error as Error).message).toContain(message);
    expect(b.events).toEqual([]);
  });

  it('says what is wrong with ports, addresses and tokens', async () => {
    const b = await node('b');
    const { port } = b.node.address!;
    await expect(node('c', { listen: { host: '127.0.0.1', port } })).rejects.toThrow(
      `cannot listen on 127.0.0.1:${port}: it is in use by another process; stop that one, or choose another port`,
    );
    await expect(
      ControlNode.open({ name: 'c', identity: '', listen: { host: '0.0.0.0', port: 0 } }),
    ).rejects.toThrow('without a token; use 127.0.0.1, or give a token file');
    await expect(node('c', { token: Buffer.from('short') })).rejects.toThrow(
      'a token of 5 bytes; give at least 16',
    );
    const a = await node('a');
    await b.node.close();
    await expect(a.node.connect({ host: '127.0.0.1', port }, 50)).rejects.toThrow(
      new RegExp(`no engine could be reached at 127.0.0.1:${port}: .*ECONNREFUSED`),
    );
  });
});

describe('a stranger at the port', () => {
  async function answerTo(b: Tester, bytes: Uint8Array): Promise<string> {
    const socket = connect({ ...b.node.address! });
    const reader = new FrameReader(1 << 20);
    socket.on('data', (piece: Buffer) => reader.push(piece));
    socket.on('error', () => undefined);
    socket.write(bytes);
    await new Promise((resolve) => socket.once('close', resolve));
    const frame = reader.next();
    return frame?.kind === frameKinds.refuse ? refusal(frame.body).message : 'closed';
  }
  const frame = (kind: 1 | 3 | 6, value: unknown): Buffer =>
    Buffer.concat(frameBytes(kind, encodeMessage(value)));

  it('is told of another version, and refused whatever it says', async () => {
    const b = await node('b');
    const hello = frame(1, { magic: 'dualpath control', version: 2, future: true });
    expect(await answerTo(b, hello)).toContain(
      'version 2 of the control protocol, this side speaks version 1',
    );
    expect(await answerTo(b, frame(1, { magic: 'x' }))).toContain('malformed control message (hello)');
    expect(await answerTo(b, frame(6, {}))).toContain('where a hello was expected');
    expect(await answerTo(b, Buffer.from('GET / HTTP/1.1\r\n\r\n'))).toContain('unknown kind');
    expect(await answerTo(b, Buffer.from([255, 255, 255, 255, 1]))).toContain('the limit is 4096');
    expect(await answerTo(b, Buffer.alloc(0))).toBe('closed'); // it does not wait for ever
    expect(b.events).toEqual([]);
    const a = await node('a');
    expect(await a.node.connect(b.node.address!)).toBe('b');
  });

  it('with the token ends its session by a malformed message, and only its own', async () => {
    const [a, b, c] = [await node('a'), await node('b'), await node('c')];
    await a.node.connect(b.node.address!);
    await c.node.connect(b.node.address!);
    a.node.send('b', 'test', { number: 'x', slots: Uint32Array.of(1, 2) });
    await vi.waitFor(() => expect(b.events).toContain('lost a INVALID_ARGUMENT'), eventually);
    await vi.waitFor(() => expect(a.events[1]).toBe('lost b INVALID_ARGUMENT'), eventually);
    c.node.send('b', 'no such', {});
    await vi.waitFor(() => expect(b.events).toContain('lost c INVALID_ARGUMENT'), eventually);
    // A new session begins; it is as good as the first.
    await vi.waitFor(() => expect(a.events.at(-1)).toBe('up b'), eventually);
    a.say('b', 3);
    await vi.waitFor(() => expect(b.got).toEqual([3]), eventually);
  });
});

describe('TLS', () => {
  it('is used when both have it, with certificates of one authority', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'dualpath-tls-'));
    try {
      const at = (name: string): string => join(directory, name);
      const openssl = (...args: string[]): Buffer => execFileSync('openssl', args, { stdio: 'pipe' });
      const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'];
      const name = ['-subj', '/CN=dualpath', '-addext', 'subjectAltName=IP:127.0.0.1'];
      openssl('req', '-x509', ...curve, ...name, '-keyout', at('key.pem'), '-out', at('cert.pem'));
      const tls = {
        key: readFileSync(at('key.pem')),
        cert: readFileSync(at('cert.pem')),
        ca: readFileSync(at('cert.pem')),
      };
      const [a, b, plain] = [await node('a', { tls }), await node('b', { tls }), await node('c')];
      const relay = await relayTo(b.node.address!);
      expect(await a.node.connect(relay.address)).toBe('b');
      a.say('b', 1);
      await vi.waitFor(() => expect(b.got).toEqual([1]), eventually);
      expect(Buffer.concat(relay.seen).includes('dualpath control')).toBe(false);
      await expect(plain.node.connect(b.node.address!, 0)).rejects.toMatchObject({ code: 'PEER_LOST' });
    } finally {
      rmSync(directory, { recursive: true, force: true });
    }
  });
});
