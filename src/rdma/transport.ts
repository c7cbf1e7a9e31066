/**
 * The verbs transport of one engine: drives its connections (ConnectionTable) with the native half and, over the control
 * connection, the engines on their other sides (PathHandshake).
 *
 * When a connection breaks, its side says so before its requests say that they ended: the control connection keeps the
 * order, so the other side's queue pair takes nothing any more when memory is given back.
 */
import { DualPathError, isDualPathError } from '../errors/index.js';
import type { Transport, TransportFacts } from '../traffic/index.js';
import type { RecordTaker, Runtime } from '../transfer/index.js';
import type { TrafficClassName } from './classes.js';
import { ConnectionTable, type ConnectionTableOptions, type TableAction } from './connection-table.js';
import type { Blame, Connection } from './connection.js';
import type { NativeEvent, NativeHalf } from './native-half.js';
import { asError, PathHandshake, type PathHandshakeOptions } from './path-handshake.js';
import type { PathMessage, PathMessageOf } from './path-messages.js';
import { watchOutages, type OutageEnded, type WayNow } from './outage-watch.js';
import { PathState } from './path-state.js';

export interface RdmaTransportOptions extends PathHandshakeOptions {
  readonly runtime: Pick<Runtime, 'register' | 'unregister'>;
  readonly connections?: Omit<ConnectionTableOptions, 'passive'>;
  /** Hears of a time in which there was something to send to a peer and nothing got through, when it is over. */
  readonly onOutage?: OutageEnded;
}

/** What all flows of KV-Cache use. */
const kv: TrafficClassName = 'kv';
const nothingMoved = { completions: 0, inFlightBytes: 0 };

export class RdmaTransport implements Transport, RecordTaker {
  readonly #options: RdmaTransportOptions;
  readonly #native: NativeHalf;
  readonly #table: ConnectionTable;
  readonly #paths = new Map<string, PathState>();
  readonly #handshake: PathHandshake;
  readonly #unlisten: () => void;
  #timer: NodeJS.Timeout | undefined;
  readonly #unwatch: () => void;
  #deviceFailed: DualPathError | undefined;
  #made = 0;
  #rebuilt = 0;
  /** Over connections that have been closed. */
  readonly #sentBytes = new Map<string, number>();
  #longestOutageMs = 0;
  #closed = false;

  constructor(options: RdmaTransportOptions) {
    this.#options = options;
    this.#native = options.native;
    this.#table = new ConnectionTable({
      ...options.connections,
      passive: (peer) => !this.#handshake.isFirst(peer),
    });
    this.#handshake = new PathHandshake(options, this.#table, {
      connected: (path) => this.#connected(path),
      failed: (path, blame, cause) => this.#connectFailed(path, blame, cause),
      broke: (path, blame, cause) => this.#broke(path, blame, cause),
      closing: (path) => {
        this.#sentBytes.set(path.peer, this.#sentTo(path));
      },
    });
    this.#unlisten = options.exchange.listen(options.name, {
      take: (from, trafficClass, message) => this.#take(from, trafficClass, message),
      reached: (peer) => this.#reached((path) => path.peer === peer),
    });
    options.runtime.register(this);
    this.#unwatch = watchOutages(() => this.#ways(), options.onOutage);
  }

  #ways(): WayNow[] {
    const { connections } = this.#native.statistics();
    return [...this.#paths.values()].map((path) => ({
      // Of the native half's facts first: its `peer` is a number.
      ...(connections.find(({ connection }) => connection === path.connection) ?? nothingMoved),
      ...{ peer: path.peer, held: path.held, connection: path.connection, cause: path.cause?.message },
      ready: this.#connection(path)?.state === 'ready',
    }));
  }

  async acquire(peer: string, signal?: AbortSignal): Promise<number> {
    if (this.#closed) throw new DualPathError('CLOSED', `engine '${this.#options.name}' has been closed`);
    if (this.#deviceFailed !== undefined) throw this.#deviceFailed;
    const path = this.#path(peer, kv);
    this.#use(path);
    path.users++;
    this.#holdsChanged(path, path.users === 1);
    try {
      this.#settle(path);
      const state = this.#connection(path)?.state;
      if (state === 'failed') throw this.#notConnected(path);
      if (state === undefined) {
        // Another connection is being closed to make room for this one.
        throw new DualPathError(
          'CAPACITY_EXHAUSTED',
          `'${peer}' cannot be reached before another connection has been closed`,
        );
      }
      if (state !== 'ready') await path.ready(signal);
      return this.#handshake.peerId(peer);
    } catch (error) {
      this.release(peer);
      throw error;
    }
  }

  release(peer: string): void {
    const path = this.#path(peer, kv);
    if (path.users === 0) return; // the peer was forgotten meanwhile
    path.users--;
    this.#holdsChanged(path, path.users === 0);
  }

  /** @param tell the side that closes the connection when it is idle has to know */
  #holdsChanged(path: PathState, tell: boolean): void {
    this.#connection(path)?.setHeld(path.held, performance.now());
    if (tell && !this.#handshake.isFirst(path.peer)) {
      this.#handshake.say(path, { kind: path.users > 0 ? 'hold' : 'unhold' });
    }
    this.#schedule();
  }

  #use({ peer, trafficClass }: PathState): void {
    this.#perform(this.#table.use(peer, trafficClass, performance.now()));
  }

  #connection({ peer, trafficClass }: PathState): Connection | undefined {
    return this.#table.get(peer, trafficClass);
  }

  #path(peer: string, trafficClass: TrafficClassName): PathState {
    const key = `${trafficClass} ${peer}`;
    let path = this.#paths.get(key);
    if (path === undefined) {
      path = new PathState(peer, trafficClass);
      this.#paths.set(key, path);
    }
    return path;
  }

  #perform(actions: readonly TableAction[]): void {
    for (const { peer, trafficClass, action } of actions) {
      const path = this.#path(peer, trafficClass);
      if (action.do === 'drain') this.#drain(path);
      else this.#handshake.begin(path, action.candidate);
    }
  }

  #take(from: string, trafficClass: TrafficClassName, message: PathMessage): void {
    if (this.#closed) return;
    const path = this.#path(from, trafficClass);
    switch (message.kind) {
      case 'offer':
        this.#handshake.offered(path, message);
        break;
      case 'wanted':
        this.#wanted(path);
        break;
      case 'hold':
      case 'unhold':
        path.peerHolds = message.kind === 'hold';
        this.#holdsChanged(path, false);
        break;
      default:
        if (message.attempt === null || path.attempt === message.attempt) this.#answered(path, message);
    }
    this.#settle(path);
  }

  /** The other side needs the connection that this side makes. */
  #wanted(path: PathState): void {
    try {
      this.#use(path);
      const connection = this.#connection(path);
      connection?.setHeld(path.held, performance.now());
      if (connection?.state !== 'failed') return;
      const { code, message } = this.#notConnected(path);
      this.#handshake.say(path, { kind: 'reject', attempt: null, final: true, code, message });
    } catch (error) {
      if (!isDualPathError(error, 'CAPACITY_EXHAUSTED')) throw error; // it will ask again
    }
  }

  #answered(
    path: PathState,
    message: PathMessageOf<'answer' | 'ready' | 'reject' | 'broken' | 'closed'>,
  ): void {
    const state = this.#connection(path)?.state;
    switch (message.kind) {
      case 'answer':
        if (state === 'connecting') this.#handshake.answered(path, message);
        break;
      case 'ready':
        if (state === 'connecting') this.#connected(path);
        break;
      case 'reject': {
        const { code, message: why, final } = message;
        this.#connectFailed(
          path,
          final ? 'local' : 'remote',
          new DualPathError(code, `'${path.peer}': ${why}`),
        );
        break;
      }
      case 'broken':
        if (state === 'ready') this.#brokenThere(path, message.cause);
        else this.#connectFailed(path, 'remote', message.cause);
        break;
      case 'closed':
        if (this.#connection(path)?.close()?.do === 'drain') this.#native.drain(path.connection!);
    }
  }

  #connected(path: PathState): void {
    const nowMs = performance.now();
    path.endHandshake();
    this.#connection(path)!.connected(nowMs);
    this.#made++;
    if (path.brokeMs !== undefined) {
      this.#rebuilt++;
      this.#longestOutageMs = Math.max(this.#longestOutageMs, nowMs - path.brokeMs);
      path.brokeMs = undefined;
    }
  }

  #connectFailed(path: PathState, blame: Blame, cause: unknown): void {
    const connection = this.#connection(path);
    if (connection?.state !== 'connecting') return;
    path.endHandshake();
    this.#handshake.closeHalf(path);
    path.cause = asError(cause);
    if (path.held) connection.connectFailed(performance.now(), blame);
    else connection.giveUp();
    this.#settle(path);
  }

  /** Its queue pair has stopped taking and sending. */
  #broke(path: PathState, blame: Blame, cause: string): void {
    const nowMs = performance.now();
    path.brokeMs ??= nowMs;
    path.cause = new DualPathError(blame === 'local' ? 'RDMA_FAILED' : 'PEER_LOST', cause);
    this.#connection(path)?.broke(nowMs, blame);
  }

  #brokenThere(path: PathState, cause: string): void {
    this.#native.drain(path.connection!);
    this.#broke(path, 'remote', `'${path.peer}' says: ${cause}`);
  }

  /** No longer wanted. */
  #drain(path: PathState): void {
    if (path.attempt !== undefined) this.#handshake.say(path, { kind: 'closed', attempt: path.attempt });
    if (path.connection !== undefined) this.#native.drain(path.connection);
  }

  #sentTo({ peer, connection }: PathState): number {
    const open = this.#native.statistics().connections.find((one) => one.connection === connection);
    return (this.#sentBytes.get(peer) ?? 0) + (open?.sentBytes ?? 0);
  }

  /** For the runtime: what the native half has to say. */
  takeRecords(): void {
    if (this.#closed) return;
    for (const event of this.#native.takeEvents()) this.#event(event);
  }

  #event(event: NativeEvent): void {
    switch (event.kind) {
      case 'broke':
      case 'drained': {
        const path = [...this.#paths.values()].find(({ connection }) => connection === event.connection);
        if (path === undefined) return;
        if (event.kind === 'drained') this.#drained(path);
        else if (event.blame !== 'cancelled') this.#brokeHere(path, event.blame, event.cause);
        this.#settle(path);
        return;
      }
      case 'port':
        if (event.up) this.#reached(() => true);
        return;
      case 'device-failed':
        this.#fail(new DualPathError('RDMA_FAILED', event.cause));
    }
  }

  #brokeHere(path: PathState, blame: Blame, cause: string): void {
    if (path.attempt !== undefined)
      this.#handshake.say(path, { kind: 'broken', attempt: path.attempt, cause });
    const connection = this.#connection(path);
    if (connection?.state === 'ready') this.#broke(path, blame, cause);
    else if (connection?.state === 'connecting') this.#connectFailed(path, blame, cause);
  }

  #drained(path: PathState): void {
    this.#handshake.closeHalf(path);
    this.#connection(path)?.drained(performance.now());
  }

  /** Everything ends: the device does not work any more. */
  #fail(error: DualPathError): void {
    this.#deviceFailed = error;
    for (const path of this.#paths.values()) path.fail(error);
  }

  #reached(which: (path: PathState) => boolean): void {
    const nowMs = performance.now();
    for (const path of this.#paths.values()) {
      if (which(path)) this.#connection(path)?.pathReturned(nowMs);
    }
    this.#schedule();
  }

  /** Tells whoever waits, and sees to what is due next. */
  #settle(path: PathState): void {
    const connection = this.#connection(path);
    if (connection?.state === 'ready') path.succeed();
    if (connection?.state === 'failed') path.fail(this.#notConnected(path));
    this.#schedule();
  }

  #notConnected({ peer, cause }: PathState): DualPathError {
    const { code, message } = cause ?? new DualPathError('PEER_LOST', 'no cause is known');
    return new DualPathError(code, `no RDMA connection to '${peer}': ${message}`, { peer });
  }

  #schedule(): void {
    clearTimeout(this.#timer);
    const { dueMs } = this.#table;
    if (dueMs === Infinity || this.#closed) return;
    const delayMs = Math.min(Math.max(0, dueMs - performance.now()), 2 ** 31 - 1);
    this.#timer = setTimeout(() => {
      this.#perform(this.#table.tick(performance.now()));
      this.#schedule();
    }, delayMs);
    this.#timer.unref();
  }

  forget(peer: string): void {
    const error = new DualPathError('PEER_LOST', `'${peer}' was lost`, { peer });
    for (const [key, path] of this.#paths) {
      if (path.peer !== peer) continue;
      path.endHandshake();
      this.#handshake.closeHalf(path);
      path.users = 0;
      path.fail(error);
      this.#paths.delete(key);
    }
    this.#table.forget(peer);
    this.#handshake.forget(peer);
    this.#schedule();
  }

  facts(): TransportFacts {
    const { device, port, linkLayer, emulated } = this.#native.facts();
    const { dscp, serviceLevel } = this.#options.classes[kv];
    const sent = new Map(this.#sentBytes);
    for (const path of this.#paths.values()) sent.set(path.peer, this.#sentTo(path));
    const sentBytesTo = [...sent].map(([peer, bytes]) => ({ peer, bytes }));
    return {
      transport: 'verbs',
      device: `${device}/${port}`,
      trafficClass: linkLayer === 'infiniband' ? `${kv} (SL ${serviceLevel})` : `${kv} (DSCP ${dscp})`,
      emulated,
      sentBytes: sentBytesTo.reduce((sum, { bytes }) => sum + bytes, 0),
      sentBytesTo,
      connections: this.#made,
      rebuilt: this.#rebuilt,
      longestOutageMs: this.#longestOutageMs,
    };
  }

  runtimeClosed(): void {
    void this.close();
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    for (const path of this.#paths.values()) {
      path.endHandshake();
      if (path.attempt !== undefined && path.connection !== undefined) {
        this.#handshake.say(path, {
          kind: 'broken',
          attempt: path.attempt,
          cause: `'${this.#options.name}' is closing`,
        });
      }
      this.#handshake.closeHalf(path);
      path.fail(new DualPathError('CLOSED', `engine '${this.#options.name}' has been closed`));
    }
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#unwatch();
    this.#unlisten();
    this.#options.runtime.unregister(this);
    this.#native.shutdown();
  }
}
