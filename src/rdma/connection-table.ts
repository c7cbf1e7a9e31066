/** The connections of one engine: one for each (peer, traffic class), made on first use, capped in number. */
import { DualPathError } from '../errors/index.js';
import type { TrafficClassName } from './classes.js';
import { Connection, type ConnectionAction, type ConnectionOptions } from './connection.js';

export interface ConnectionTableOptions extends ConnectionOptions {
  /** Connections that may hold a queue pair at a time: the completion queue has room for so many. Default 256. */
  readonly maxConnections?: number;
  /** The other side of these closes them when they are idle. */
  readonly passive?: (peer: string) => boolean;
}

export interface TableAction {
  readonly peer: string;
  readonly trafficClass: TrafficClassName;
  readonly action: ConnectionAction;
}

interface Entry {
  readonly peer: string;
  readonly trafficClass: TrafficClassName;
  readonly connection: Connection;
}

/** What it does to one connection the caller does through `get`; actions come from use() and tick(). */
export class ConnectionTable {
  readonly #options: ConnectionTableOptions;
  readonly #max: number;
  readonly #entries = new Map<string, Entry>();

  constructor(options: ConnectionTableOptions = {}) {
    this.#options = options;
    this.#max = options.maxConnections ?? 256;
  }

  get(peer: string, trafficClass: TrafficClassName): Connection | undefined {
    return this.#entries.get(keyOf(peer, trafficClass))?.connection;
  }

  /** Connections that hold a queue pair or are about to. */
  get open(): number {
    let count = 0;
    for (const { connection } of this.#entries.values()) if (holdsQueuePair(connection)) count++;
    return count;
  }

  /**
   * A request needs this connection. When all are taken, the ready one unused for longest is closed, and this one
   * can be made once that has drained.
   * @throws CAPACITY_EXHAUSTED until then, and when every connection was used just now
   */
  use(peer: string, trafficClass: TrafficClassName, nowMs: number): TableAction[] {
    const key = keyOf(peer, trafficClass);
    const entry = this.#entries.get(key) ?? this.#entry(peer, trafficClass);
    const { state } = entry.connection;
    if ((state === 'idle' || state === 'failed') && this.open >= this.#max) {
      return this.#makeRoom(nowMs);
    }
    this.#entries.set(key, entry);
    const action = entry.connection.use(nowMs);
    return action === null ? [] : [{ peer, trafficClass, action }];
  }

  /**
   * The other side makes this connection, and has got as far as needing this side's half.
   * @throws CAPACITY_EXHAUSTED when there is no room, or the connection of before has not drained
   */
  accept(peer: string, trafficClass: TrafficClassName, nowMs: number): Connection {
    const key = keyOf(peer, trafficClass);
    const entry = this.#entries.get(key) ?? this.#entry(peer, trafficClass);
    const room = holdsQueuePair(entry.connection) || this.open < this.#max;
    if (!room || !entry.connection.accept(nowMs)) {
      throw new DualPathError(
        'CAPACITY_EXHAUSTED',
        room
          ? 'the connection of before has not drained yet'
          : `${this.open} connections are open, the most there can be`,
        { open_connections: this.open, max_connections: this.#max },
      );
    }
    this.#entries.set(key, entry);
    return entry.connection;
  }

  #entry(peer: string, trafficClass: TrafficClassName): Entry {
    const passive = this.#options.passive?.(peer) === true;
    const connection = new Connection(passive ? { ...this.#options, idleMs: Infinity } : this.#options);
    return { peer, trafficClass, connection };
  }

  /** A peer is gone: what there was to it is forgotten. Its queue pairs have been destroyed. */
  forget(peer: string): void {
    for (const [key, entry] of this.#entries) if (entry.peer === peer) this.#entries.delete(key);
  }

  tick(nowMs: number): TableAction[] {
    const actions: TableAction[] = [];
    for (const [key, { peer, trafficClass, connection }] of this.#entries) {
      const action = connection.tick(nowMs);
      if (action !== null) actions.push({ peer, trafficClass, action });
      if (connection.state === 'idle' && !connection.held) this.#entries.delete(key);
    }
    return actions;
  }

  /** When tick() is due; Infinity: not by time alone. */
  get dueMs(): number {
    return Math.min(Infinity, ...[...this.#entries.values()].map(({ connection }) => connection.dueMs));
  }

  #makeRoom(nowMs: number): TableAction[] {
    const ready = [...this.#entries.values()]
      .filter(
        ({ connection }) => connection.state === 'ready' && !connection.held && connection.usedMs < nowMs,
      )
      .sort((a, b) => a.connection.usedMs - b.connection.usedMs);
    const draining = [...this.#entries.values()].some(({ connection }) => connection.state === 'draining');
    const [oldest] = ready;
    const action = draining ? null : (oldest?.connection.close() ?? null);
    if (oldest !== undefined && action !== null) {
      return [{ peer: oldest.peer, trafficClass: oldest.trafficClass, action }];
    }
    throw new DualPathError(
      'CAPACITY_EXHAUSTED',
      `${this.open} connections are open, the most there can be, and ${draining ? 'one is being closed' : 'all are in use'}; ` +
        'wait and try again, or allow more with maxConnections',
      { open_connections: this.open, max_connections: this.#max },
    );
  }
}

function holdsQueuePair({ state }: Connection): boolean {
  return state !== 'idle' && state !== 'failed';
}

function keyOf(peer: string, trafficClass: TrafficClassName): string {
  return `${trafficClass} ${peer}`;
}
