/**
 * How a connection between two engines is made, over the control connection. Of the two the one whose name sorts first makes
 * it, in either direction's interest; the other asks for it:
 *
 *   first   offer    its queue pair and memory
 *   other   answer   its own, connected: it takes what comes
 *   first   ready    connected, too: the other may send
 */
import { randomUUID } from 'node:crypto';
import { DualPathError, isDualPathError } from '../errors/index.js';
import type { TrafficClasses } from './classes.js';
import type { ConnectionTable } from './connection-table.js';
import type { Blame } from './connection.js';
import type { ConnectionHalf, NativeHalf } from './native-half.js';
import type { PathExchange, PathMessage, PathMessageOf } from './path-messages.js';
import type { PathState } from './path-state.js';
import { agreePath, rdmaProtocolVersion, type PathHello } from './path.js';

export interface PathHandshakeOptions {
  /** This engine's name on the control network. */
  readonly name: string;
  /** Of model and layout. */
  readonly identity: string;
  readonly native: NativeHalf;
  readonly exchange: PathExchange;
  readonly classes: TrafficClasses;
  /** GID indices to try, the best first; none: InfiniBand within a subnet. */
  readonly gidIndexes: readonly number[];
  /** Calls the native half so that its errors have codes. */
  readonly call?: <T>(native: () => T) => T;
  /** How errors of programs are to name a peer. */
  readonly namePeer?: (id: number, peer: string) => void;
  /** Longest that a handshake may take; default 2 s. */
  readonly handshakeMs?: number;
}

export interface PathHandshakeHooks {
  /** The queue pairs of both sides work. */
  connected(path: PathState): void;
  failed(path: PathState, blame: Blame, cause: unknown): void;
  broke(path: PathState, blame: Blame, cause: string): void;
  /** Its bytes are to be counted: the connection is about to be destroyed. */
  closing(path: PathState): void;
}

export class PathHandshake {
  readonly #options: PathHandshakeOptions;
  readonly #native: NativeHalf;
  readonly #table: ConnectionTable;
  readonly #hooks: PathHandshakeHooks;
  readonly #peerIds = new Map<string, { readonly memory: string; readonly id: number }>();

  constructor(options: PathHandshakeOptions, table: ConnectionTable, hooks: PathHandshakeHooks) {
    this.#options = options;
    this.#native = options.native;
    this.#table = table;
    this.#hooks = hooks;
  }

  /** The peer's number for descriptors, once there has been a connection. */
  peerId(peer: string): number {
    const known = this.#peerIds.get(peer);
    if (known === undefined) throw new DualPathError('INTERNAL', `'${peer}' has told nothing of its memory`);
    return known.id;
  }

  forget(peer: string): void {
    this.#peerIds.delete(peer);
  }

  isFirst(peer: string): boolean {
    return this.#options.name < peer;
  }

  say({ peer, trafficClass }: PathState, message: PathMessage): void {
    this.#options.exchange.send(peer, this.#options.name, trafficClass, message);
  }

  #start(path: PathState): void {
    const { handshakeMs = 2000 } = this.#options;
    path.startHandshake(handshakeMs, () => {
      this.#hooks.failed(
        path,
        'remote',
        `'${path.peer}' did not complete the handshake within ${handshakeMs} ms`,
      );
    });
  }

  /** A connection is to be made: by this side, or asked for. */
  begin(path: PathState, candidate: number): void {
    this.#start(path);
    if (!this.#options.exchange.reachable(path.peer)) {
      this.#hooks.failed(path, 'remote', `'${path.peer}' cannot be reached by its control connection`);
    } else if (!this.isFirst(path.peer)) {
      this.say(path, { kind: 'wanted' });
    } else {
      try {
        const hello = this.#openHalf(path, candidate);
        path.attempt = randomUUID();
        const memory = this.#call(() => this.#native.memory());
        this.say(path, { kind: 'offer', attempt: path.attempt, candidate, hello, memory });
      } catch (error) {
        this.#hooks.failed(path, blameOf(error, 'local'), error);
      }
    }
  }

  /** The other side has made a queue pair. */
  offered(path: PathState, { attempt, candidate, hello, memory }: PathMessageOf<'offer'>): void {
    const { peer, trafficClass } = path;
    try {
      this.#supersede(path);
      const nowMs = performance.now();
      const connection = this.#table.accept(peer, trafficClass, nowMs);
      connection.setHeld(path.held, nowMs);
      path.attempt = attempt;
      this.#start(path);
      const own = this.#openHalf(path, candidate);
      this.#connectHalf(path, own, hello, memory);
      this.say(path, {
        kind: 'answer',
        attempt,
        hello: own,
        memory: this.#call(() => this.#native.memory()),
      });
    } catch (error) {
      const blame = blameOf(error, 'remote');
      const { code, message } = asError(error);
      this.say(path, { kind: 'reject', attempt, final: blame === 'local', code, message });
      this.#hooks.failed(path, blame, error);
    }
  }

  /** The first side makes a connection anew: what this side has of an earlier one is over. */
  #supersede(path: PathState): void {
    const connection = this.#table.get(path.peer, path.trafficClass);
    if (connection?.state === 'ready') this.#hooks.broke(path, 'remote', 'the other side made a new one');
    if (connection?.state !== 'draining') return;
    this.closeHalf(path);
    connection.drained(performance.now());
  }

  answered(path: PathState, { attempt, hello, memory }: PathMessageOf<'answer'>): void {
    if (path.hello === undefined) return;
    try {
      this.#connectHalf(path, path.hello, hello, memory);
      this.say(path, { kind: 'ready', attempt });
      this.#hooks.connected(path);
    } catch (error) {
      this.say(path, { kind: 'broken', attempt, cause: asError(error).message });
      this.#hooks.failed(path, blameOf(error, 'remote'), error);
    }
  }

  #call<T>(call: () => T): T {
    return this.#options.call === undefined ? call() : this.#options.call(call);
  }

  /** Makes this side's queue pair. */
  #openHalf(path: PathState, candidate: number): PathHello {
    this.closeHalf(path);
    const { identity, gidIndexes } = this.#options;
    const { trafficClass } = path;
    const { linkLayer, mtuBytes } = this.#native.facts();
    const gidIndex = gidIndexes[candidate % Math.max(1, gidIndexes.length)];
    const { connection, half } = this.#call(() =>
      this.#native.open({ trafficClass, ...(gidIndex === undefined ? {} : { gidIndex }) }),
    );
    path.connection = connection;
    const { creditAddress, qpNum, psn, receives, creditKey, gid, lid } = half;
    path.hello = {
      ...{ version: rdmaProtocolVersion, identity, trafficClass, linkLayer, mtuBytes },
      ...{ lid, gid, qpNum, psn, receives, creditKey, creditAddress: BigInt(creditAddress) },
    };
    return path.hello;
  }

  /** Connects this side's queue pair with what the other has said. */
  #connectHalf(path: PathState, own: PathHello, peer: PathHello, memory: unknown): void {
    const agreed = agreePath(own, peer, this.#options.classes);
    const { qpNum, psn, receives, creditKey, gid, lid } = peer;
    const half: ConnectionHalf = {
      ...{ qpNum, psn, receives, creditKey, gid, lid },
      creditAddress: `0x${peer.creditAddress.toString(16)}`,
    };
    const { mtuBytes, serviceLevel, trafficClass, timeout, retryCount, rnrRetry } = agreed;
    const id = this.#know(path.peer, memory);
    this.#call(() =>
      this.#native.connect(path.connection!, {
        ...{ peer: id, half, mtuBytes, serviceLevel, trafficClass },
        ...{ timeout, retryCount, rnrRetry },
      }),
    );
  }

  /** Its memory says whether it is still the same. */
  #know(peer: string, memory: unknown): number {
    const text = JSON.stringify(memory);
    const known = this.#peerIds.get(peer);
    if (known?.memory === text) return known.id;
    const id = this.#call(() => this.#native.addPeer(peer, memory));
    this.#options.namePeer?.(id, peer);
    this.#peerIds.set(peer, { memory: text, id });
    return id;
  }

  closeHalf(path: PathState): void {
    if (path.connection === undefined) return;
    this.#hooks.closing(path);
    this.#native.close(path.connection);
    path.connection = undefined;
  }
}

export function asError(error: unknown): DualPathError {
  if (error instanceof DualPathError) return error;
  return new DualPathError('PEER_LOST', error instanceof Error ? error.message : String(error));
}

/** A refused state change may be the path's doing; that there is no room passes; the rest stays as it is. */
function blameOf(error: unknown, ofDevice: Blame): Blame {
  if (isDualPathError(error, 'RDMA_FAILED')) return ofDevice;
  return isDualPathError(error, 'CAPACITY_EXHAUSTED') || isDualPathError(error, 'PEER_LOST')
    ? 'remote'
    : 'local';
}
