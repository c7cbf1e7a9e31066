/**
 * One other node, over the sockets that come and go: a session as long as both sides remember it. What the session cannot
 * survive (too long an outage, a fault, the other side begun anew) is told once, as its loss; then a new one begins.
 */
import { DualPathError } from '../errors/index.js';
import { frameKinds, maxFrameBytes, type Frame } from './frame.js';
import type { FrameSocket, SocketEnd } from './frame-socket.js';
import { refusal, refuse, type Met } from './handshake.js';
import { Session } from './session.js';
import type { ControlTiming } from './timing.js';

export interface PeerHooks {
  /** Throws for a message that cannot be understood. */
  message(body: Buffer): void;
  /** A session has begun. */
  up(): void;
  /** A connection works, the first or another one. */
  reached(): void;
  /** It is over: nothing that was sent and not answered will be. `anew`: the other side has begun another one. */
  lost(error: DualPathError, anew: boolean): void;
}

/** A message's number and what has been received of the other side, 6 bytes each. */
const headBytes = 12;
/** More waits in the session, where it can be sent again, not in the socket. */
const backlogBytes = 2 ** 20;
const acknowledgeEvery = 64;
/** Whoever can wait does, while so much has not been acknowledged. */
const highWaterBytes = 4 * 2 ** 20;

export class PeerLink {
  readonly name: string;
  readonly #hooks: PeerHooks;
  readonly #timing: ControlTiming;
  #session = new Session();
  #socket: FrameSocket | undefined;
  #pings: NodeJS.Timeout | undefined;
  #lostTimer: NodeJS.Timeout | undefined;
  #lostAtMs = Infinity;
  #lastAttempt = '';
  #sinceAcknowledged = 0;
  #waiters: (() => void)[] = [];
  #closed = false;

  constructor(name: string, hooks: PeerHooks, timing: ControlTiming) {
    this.name = name;
    this.#hooks = hooks;
    this.#timing = timing;
  }

  get session(): Session {
    return this.#session;
  }
  get connected(): boolean {
    return this.#socket !== undefined;
  }

  /** A socket whose handshake both sides are content with. The listener says `welcome` before anything else. */
  attach(socket: FrameSocket, met: Met, welcome: boolean): void {
    if (this.#closed) {
      socket.destroy();
      return;
    }
    this.#drop();
    if (met.session !== this.#session) {
      const anew = new DualPathError('PEER_LOST', `'${this.name}' has begun anew`);
      if (this.#session.peerId === null) this.#session = met.session;
      else this.#lose(anew, met.session); // what is said on hearing of it goes to the new one
    }
    const session = this.#session;
    const begun = session.peerId === null;
    session.bind(met.peerSession);
    session.resume(met.received);
    this.#cancelLoss();
    this.#socket = socket;
    if (welcome) socket.sendMessage(frameKinds.welcome, { received: session.received });
    this.#pings = setInterval(() => this.#ping(socket), this.#timing.pingMs);
    socket.onDrain = () => this.#pump();
    void socket.ended.then((end) => this.#ended(socket, end));
    if (begun) this.#hooks.up();
    socket.listen(maxFrameBytes, (frame) => this.#take(socket, frame));
    this.#pump();
    this.#hooks.reached();
  }

  /** False when the other side has been lost for having acknowledged nothing for too long. */
  send(body: Uint8Array): boolean {
    if (this.#closed) return false;
    try {
      this.#session.push(body);
    } catch (error) {
      this.fault(error as DualPathError);
      return false;
    }
    this.#pump();
    return true;
  }

  /** Resolves when the other side keeps up, or is lost. */
  async writable(): Promise<void> {
    while (!this.#closed && this.#session.outboxBytes > highWaterBytes) {
      await new Promise<void>((resolve) => this.#waiters.push(resolve));
    }
  }

  #pump(): void {
    const socket = this.#socket;
    while (socket !== undefined && !socket.over && socket.backlogBytes < backlogBytes) {
      const message = this.#session.next();
      if (message === undefined) return;
      const head = Buffer.allocUnsafe(headBytes);
      head.writeUIntLE(message.number, 0, 6);
      head.writeUIntLE(this.#session.received, 6, 6);
      socket.send(frameKinds.message, Buffer.concat([head, message.body]));
    }
  }

  #take(socket: FrameSocket, { kind, body }: Frame): void {
    if (socket !== this.#socket) return;
    switch (kind) {
      case frameKinds.message:
        this.#takeMessage(body);
        break;
      case frameKinds.ping:
        this.#attempt(() => this.#acknowledged(body.readUIntLE(0, 6)));
        break;
      case frameKinds.silent:
        socket.destroy(new Error('the other side heard nothing'));
        break;
      case frameKinds.bye:
        this.lose(new DualPathError('PEER_LOST', `'${this.name}' has ended`));
        break;
      case frameKinds.refuse:
        this.lose(refusal(body));
        break;
      default:
        this.fault(
          new DualPathError('INVALID_ARGUMENT', `'${this.name}' sent a frame of kind ${kind} in a session`),
        );
    }
  }

  #takeMessage(body: Buffer): void {
    this.#attempt(() => {
      const number = body.readUIntLE(0, 6);
      this.#acknowledged(body.readUIntLE(6, 6));
      if (!this.#session.accept(number)) return;
      if (++this.#sinceAcknowledged >= acknowledgeEvery) this.#ping(this.#socket!);
      this.#hooks.message(body.subarray(headBytes));
    });
  }

  /** What goes wrong with the other side's words is its fault, and ends its session, not this process. */
  #attempt(take: () => void): void {
    try {
      take();
    } catch (error) {
      const cause =
        error instanceof DualPathError
          ? error
          : new DualPathError('INVALID_ARGUMENT', `'${this.name}': ${String(error)}`, {}, { cause: error });
      this.fault(cause);
    }
  }

  #acknowledged(number: number): void {
    this.#session.acknowledged(number);
    if (this.#session.outboxBytes <= highWaterBytes) this.#wakeWaiters();
  }

  #wakeWaiters(): void {
    for (const wake of this.#waiters.splice(0)) wake();
  }

  #ping(socket: FrameSocket): void {
    this.#sinceAcknowledged = 0;
    const head = Buffer.allocUnsafe(6);
    head.writeUIntLE(this.#session.received, 0, 6);
    socket.send(frameKinds.ping, head);
    if (performance.now() - socket.heardMs < this.#timing.deadMs) return;
    // After a pause of this process what the other side said meanwhile lies in the socket, to be read first.
    setImmediate(() => {
      const silentMs = performance.now() - socket.heardMs;
      if (silentMs < this.#timing.deadMs) return;
      socket.giveUp(new Error(`silent for ${Math.round(silentMs)} ms`));
    });
  }

  #ended(socket: FrameSocket, { error, byPeer }: SocketEnd): void {
    if (socket !== this.#socket) return;
    this.#drop();
    if (error instanceof DualPathError) {
      this.lose(error);
      return;
    }
    this.#loseAfter(this.#timing.lostMs, error?.message ?? 'it was closed');
    if (byPeer) this.#gone(error?.message ?? 'it closed the connection');
  }

  /** The other side's system says that nobody is there. */
  #gone(sign: string): void {
    this.#loseAfter(this.#timing.goneMs, `its process is gone: ${sign}`);
  }

  /** An attempt to reach the other side again failed; `refused`: its system says that nobody is there. */
  notReached(error: unknown, refused: boolean): void {
    this.#lastAttempt = error instanceof Error ? `; the last attempt: ${error.message}` : '';
    if (refused) this.#gone('it refuses connections');
  }

  #loseAfter(delayMs: number, why: string): void {
    if (this.#session.peerId === null || this.#closed) return;
    const atMs = performance.now() + delayMs;
    if (atMs >= this.#lostAtMs) return;
    clearTimeout(this.#lostTimer);
    this.#lostAtMs = atMs;
    this.#lostTimer = setTimeout(() => {
      this.lose(
        new DualPathError('PEER_LOST', `'${this.name}' cannot be reached: ${why}${this.#lastAttempt}`, {
          peer: this.name,
        }),
      );
    }, delayMs);
  }

  #cancelLoss(): void {
    clearTimeout(this.#lostTimer);
    this.#lostAtMs = Infinity;
    this.#lastAttempt = '';
  }

  /** Ends the session for a fault, and says so to the other side. */
  fault(error: DualPathError): void {
    if (this.#socket !== undefined) refuse(this.#socket, error);
    this.lose(error);
  }

  /** Ends the session. */
  lose(error: DualPathError): void {
    this.#drop();
    this.#lose(error);
  }

  #lose(error: DualPathError, next?: Session): void {
    this.#cancelLoss();
    const begun = this.#session.peerId !== null;
    this.#session = next ?? new Session();
    this.#wakeWaiters();
    if (begun && !this.#closed) this.#hooks.lost(error, next !== undefined);
  }

  #drop(): void {
    clearInterval(this.#pings);
    const socket = this.#socket;
    this.#socket = undefined;
    if (socket !== undefined && !socket.over) socket.destroy();
  }

  /** Says goodbye. The hooks hear nothing of it. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#cancelLoss();
    clearInterval(this.#pings);
    this.#socket?.finish(frameKinds.bye, {});
    this.#socket = undefined;
    this.#wakeWaiters();
  }
}
