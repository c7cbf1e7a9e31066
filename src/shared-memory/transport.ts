/**
 * Loopback between processes of one host: engines write into each other's memory, which is mapped in both. It stands for a
 * network where there is none, and every report names it.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { callNative, native, type NativeSharedTransport } from '../binding/index.js';
import { DualPathError, isDualPathError } from '../errors/index.js';
import type { OpenTransport, Transport, TransportFacts } from '../traffic/index.js';
import type { TransferEngine } from '../transfer/index.js';
import { hostIdentity, type MemoryExchange, type MemoryWord } from './exchange.js';
import { lifeOf, lives, type Life } from './life.js';

export interface SharedMemorySettings {
  readonly exchange: MemoryExchange;
  /** Identity of model and layout. */
  readonly identity: string;
  /** How long a peer that is there may take to let this engine in; default 10 s. */
  readonly patienceMs?: number;
}

/** For TrafficManager, with `sharedMemory`. @throws when it is opened: MEMORY_LIMIT, CAPACITY_EXHAUSTED */
export function sharedMemoryTransport(settings: SharedMemorySettings): OpenTransport {
  return (engine) => new SharedMemoryTransport(engine, settings);
}

interface Asked {
  readonly name: string;
  resolve(invitation: unknown): void;
  reject(error: DualPathError): void;
}

const retryMs = 20;
/** A copy takes less than a millisecond; only a process that was stopped takes longer. */
const quietMs = 1000;

class SharedMemoryTransport implements Transport {
  readonly #engine: TransferEngine;
  readonly #exchange: MemoryExchange;
  readonly #identity: string;
  readonly #patienceMs: number;
  readonly #native: NativeSharedTransport;
  readonly #unlisten: () => void;
  readonly #closed = new AbortController();
  /** By name: the native peer, or the work of getting it. */
  readonly #peers = new Map<string, Promise<number>>();
  readonly #names = new Map<number, string>();
  readonly #asked = new Map<number, Asked>();
  /** By name: the mailbox of who may write here. */
  readonly #guests = new Map<string, { readonly mailbox: number; readonly life: Life | undefined }>();
  #attempts = 0;
  #connections = 0;
  #rebuilt = 0;

  constructor(engine: TransferEngine, { exchange, identity, patienceMs = 10_000 }: SharedMemorySettings) {
    this.#engine = engine;
    this.#exchange = exchange;
    this.#identity = identity;
    this.#patienceMs = patienceMs;
    this.#native = callNative(() => new (native().SharedTransport)({ engine: engine.handle }));
    this.#unlisten = exchange.listen((from, said) => this.#take(from, said));
  }

  async acquire(name: string, signal?: AbortSignal): Promise<number> {
    let peer = this.#peers.get(name);
    if (peer === undefined) {
      peer = this.#connect(name);
      this.#peers.set(name, peer);
      peer.catch(() => {
        if (this.#peers.get(name) === peer) this.#peers.delete(name);
      });
    }
    return await unlessAborted(peer, signal, name);
  }

  /** Asks until the other side is open, for as long as patience lasts. */
  async #connect(name: string): Promise<number> {
    const deadlineMs = performance.now() + this.#patienceMs;
    for (;;) {
      try {
        const invitation = await this.#ask(name, deadlineMs);
        const peer = callNative(() => this.#native.addPeer(name, invitation));
        this.#engine.namePeer(peer, `'${name}' over shared memory`);
        if ([...this.#names.values()].includes(name)) this.#rebuilt++;
        this.#names.set(peer, name);
        this.#connections++;
        return peer;
      } catch (error) {
        if (!isDualPathError(error, 'CLOSED') || performance.now() > deadlineMs) throw error;
        await sleep(retryMs, undefined, { signal: this.#closed.signal }).catch(() => undefined);
        if (this.#closed.signal.aborted) throw closedError(name);
      }
    }
  }

  async #ask(name: string, deadlineMs: number): Promise<unknown> {
    const attempt = ++this.#attempts;
    let late: NodeJS.Timeout | undefined;
    try {
      return await new Promise<unknown>((resolve, reject) => {
        this.#asked.set(attempt, { name, resolve, reject });
        const host = { host: hostIdentity(), pid: process.pid };
        const wanted = { kind: 'wanted', attempt, ...host, identity: this.#identity } as const;
        if (!this.#exchange.send(name, wanted)) {
          reject(new DualPathError('PEER_LOST', `engine '${name}' is not connected`, { peer: name }));
        }
        const leftMs = Math.max(0, deadlineMs - performance.now());
        late = setTimeout(() => {
          reject(new DualPathError('PEER_LOST', `engine '${name}' did not answer in ${this.#patienceMs} ms`));
        }, leftMs);
      });
    } finally {
      clearTimeout(late);
      this.#asked.delete(attempt);
    }
  }

  #take(from: string, said: MemoryWord): void {
    if (said.kind === 'wanted') {
      this.#invite(from, said);
      return;
    }
    const asked = this.#asked.get(said.attempt);
    if (asked?.name !== from) return; // given up meanwhile
    if (said.kind === 'invited') asked.resolve(said.invitation);
    else asked.reject(new DualPathError(said.code, `engine '${from}': ${said.message}`));
  }

  #invite(from: string, { attempt, host, pid, identity }: Extract<MemoryWord, { kind: 'wanted' }>): void {
    try {
      if (identity !== this.#identity) {
        throw new DualPathError(
          'INVALID_ARGUMENT',
          `its model and layout are '${this.#identity}', not '${identity}': give both the same model and block size`,
        );
      }
      if (host !== hostIdentity()) {
        throw new DualPathError(
          'INVALID_ARGUMENT',
          `shared memory is for engines of one host: it runs on '${hostIdentity()}', not on '${host}'; use RDMA`,
        );
      }
      this.#shutOut(from); // whoever had its name before
      const invitation = callNative(() => this.#native.invite());
      this.#guests.set(from, { mailbox: invitation.mailbox, life: lifeOf(pid) });
      this.#exchange.send(from, { kind: 'invited', attempt, invitation });
    } catch (error) {
      const { code, message } =
        error instanceof DualPathError ? error : new DualPathError('INTERNAL', String(error));
      this.#exchange.send(from, { kind: 'refused', attempt, code, message: message.slice(0, 4096) });
    }
  }

  /**
   * From its return on that peer writes nothing here: its requests' memory may be given back.
   * @throws PEER_LOST when that cannot be: it was stopped in the midst of a copy, which it would finish whenever it goes
   * on. Nothing but the end of this process makes that harmless.
   */
  #shutOut(name: string): void {
    const guest = this.#guests.get(name);
    if (guest === undefined) return;
    this.#guests.delete(name);
    const deadlineMs = performance.now() + quietMs;
    while (!this.#native.shutOut(guest.mailbox)) {
      // Killed in the midst of a copy it goes on with nothing.
      if (guest.life === undefined || !lives(guest.life)) return;
      if (performance.now() < deadlineMs) continue;
      throw new DualPathError(
        'PEER_LOST',
        `engine '${name}' was stopped while it wrote into the memory of this one, which cannot be used again: end ` +
          'this process and start it anew',
        { peer: name },
      );
    }
  }

  release(): void {
    // Nothing is held: it costs nothing.
  }

  forget(name: string): void {
    const peer = this.#peers.get(name);
    this.#peers.delete(name);
    peer?.then(
      (id) => this.#native.lose(id),
      () => undefined,
    );
    for (const asked of this.#asked.values()) {
      if (asked.name === name)
        asked.reject(new DualPathError('PEER_LOST', `engine '${name}' was lost`, { peer: name }));
    }
    this.#shutOut(name);
  }

  facts(): TransportFacts {
    const sent = this.#native.statistics().sentBytes;
    return {
      transport: 'shared-memory',
      device: null,
      trafficClass: null,
      emulated: true,
      sentBytes: sent.reduce((sum, { bytes }) => sum + bytes, 0),
      sentBytesTo: sent.map(({ peer, bytes }) => ({ peer: this.#names.get(peer)!, bytes })),
      connections: this.#connections,
      rebuilt: this.#rebuilt,
      longestOutageMs: 0,
    };
  }

  /** Peers no longer get in; those that are in are shut out by the engine's end. */
  async close(): Promise<void> {
    if (this.#closed.signal.aborted) return;
    this.#closed.abort();
    this.#unlisten();
    for (const asked of this.#asked.values()) asked.reject(closedError(asked.name));
  }
}

function closedError(name: string): DualPathError {
  return new DualPathError('CLOSED', `the engine was closed before it was connected to '${name}'`);
}

async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal | undefined, name: string): Promise<T> {
  if (signal === undefined) return await work;
  const over = new AbortController();
  const aborted = new Promise<never>((_, reject) => {
    const stop = (): void =>
      reject(new DualPathError('CANCELLED', `no connection to '${name}' is wanted any more`));
    if (signal.aborted) stop();
    else signal.addEventListener('abort', stop, { signal: over.signal });
  });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    over.abort();
  }
}
