import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Session } from '../../src/control/session.js';

/** Both ends of one session, and a socket that may lose its tail when it breaks. */
class Pair {
  readonly ends = [new Session(), new Session()] as const;
  readonly got: [number[], number[]] = [[], []];
  readonly said: [number[], number[]] = [[], []];
  /** On the way to end 0 and to end 1. */
  wires: [
    { number: number; ack: number; value: number }[],
    { number: number; ack: number; value: number }[],
  ] = [[], []];

  constructor() {
    this.ends[0].bind(this.ends[1].id);
    this.ends[1].bind(this.ends[0].id);
  }
  say(from: 0 | 1): void {
    const value = this.said[from].length;
    this.said[from].push(value);
    this.ends[from].push(Buffer.from(String(value)));
  }
  pump(from: 0 | 1): void {
    const message = this.ends[from].next();
    if (message === undefined) return;
    const value = Number(Buffer.from(message.body).toString());
    this.wires[1 - from]!.push({ number: message.number, ack: this.ends[from].received, value });
  }
  deliver(to: 0 | 1): void {
    const packet = this.wires[to].shift();
    if (packet === undefined) return;
    this.ends[to].acknowledged(packet.ack);
    if (this.ends[to].accept(packet.number)) this.got[to].push(packet.value);
  }
  /** The socket breaks with what is on it; the next begins with what each side has. */
  reconnect(): void {
    this.wires = [[], []];
    const [a, b] = this.ends;
    const [fromA, fromB] = [a.received, b.received];
    a.resume(fromB);
    b.resume(fromA);
  }
}

describe('Session', () => {
  it('carries every message once and in order, wherever sockets break', () => {
    const step = fc.tuple(
      fc.constantFrom('say', 'say', 'pump', 'pump', 'deliver', 'deliver', 'reconnect'),
      fc.constantFrom(0, 1),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 300 }), (steps) => {
        const pair = new Pair();
        for (const [what, end] of steps) {
          const side = end;
          if (what === 'say') pair.say(side);
          else if (what === 'pump') pair.pump(side);
          else if (what === 'deliver') pair.deliver(side);
          else pair.reconnect();
          for (const to of [0, 1] as const) {
            expect(pair.got[to]).toEqual(pair.said[1 - to]!.slice(0, pair.got[to].length));
          }
        }
        pair.reconnect();
        for (let i = 0; i < 700; i++) {
          for (const side of [0, 1] as const) {
            pair.pump(side);
            pair.deliver(side);
          }
        }
        expect(pair.got).toEqual([pair.said[1], pair.said[0]]);
      }),
      { numRuns: 300 },
    );
  });

  it('keeps what is not acknowledged, up to its limits', () => {
    const session = new Session({ maxMessages: 3, maxBytes: 100 });
    for (let i = 0; i < 3; i++) session.push(new Uint8Array(10));
    expect(() => session.push(new Uint8Array(1))).toThrow(
      /3 messages of 30 bytes .* 3 messages and 100 bytes may/,
    );
    session.acknowledged(2);
    expect(session).toMatchObject({ unacknowledged: 1, outboxBytes: 10 });
    session.push(new Uint8Array(90));
    expect(() => session.push(new Uint8Array(1))).toThrow(
      expect.objectContaining({ code: 'CAPACITY_EXHAUSTED' }),
    );
  });

  it('refuses gaps, and acknowledgements of what was never sent', () => {
    const session = new Session();
    expect(session.accept(1)).toBe(true);
    expect(session.accept(1)).toBe(false);
    expect(() => session.accept(3)).toThrow('something is missing');
    expect(() => session.acknowledged(1)).toThrow('0 have been sent');
  });

  it('is over when the other side calls it by another name', () => {
    const session = new Session();
    expect(session.goesOnWith('a')).toBe(true);
    session.bind('a');
    expect([session.goesOnWith('a'), session.goesOnWith('b')]).toEqual([true, false]);
    expect(() => session.bind('b')).toThrow(expect.objectContaining({ code: 'INTERNAL' }));
  });
});
