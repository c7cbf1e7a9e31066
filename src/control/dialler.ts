/** Reaches a node at an address, and does so again whenever the connection has ended, on its own timer. */
import { connect as connectTcp, isIP, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import { DualPathError } from '../errors/index.js';
import { addressText, type Address, type TlsFiles } from './address.js';
import { FrameSocket } from './frame-socket.js';
import { dial, ForgottenError, type Identity } from './handshake.js';
import type { PeerLink } from './peer-link.js';
import { Session } from './session.js';
import type { ControlTiming } from './timing.js';

export interface DiallerOptions {
  readonly address: Address;
  readonly own: Identity;
  readonly tls: TlsFiles | undefined;
  readonly timing: ControlTiming;
  /** The link to a node that has been met; undefined when it is connected already. */
  linkTo(node: string): PeerLink | undefined;
}

export class Dialler {
  readonly #options: DiallerOptions;
  readonly #stop = new AbortController();
  #link: PeerLink | undefined;
  #fresh = new Session();
  #lastError: unknown;

  constructor(options: DiallerOptions) {
    this.#options = options;
  }

  /** The node's name once it has been reached; goes on dialling after that. @throws PEER_LOST, and why it was refused */
  async first(patienceMs: number): Promise<string> {
    const deadlineMs = performance.now() + patienceMs;
    for (let waitMs = this.#options.timing.firstRedialMs; ; waitMs *= 2) {
      const socket = await this.#attempt();
      if (socket !== undefined) {
        void this.#goOn(socket);
        return this.#link!.name;
      }
      if (this.#link !== undefined) return this.#link.name;
      const error = this.#lastError;
      if (isFinal(error)) throw error;
      if (performance.now() > deadlineMs || this.#stop.signal.aborted) throw this.#notReached(error);
      await this.#wait(waitMs);
    }
  }

  async #goOn(socket: FrameSocket | undefined): Promise<void> {
    const { timing } = this.#options;
    for (let waitMs = timing.firstRedialMs; !this.#stop.signal.aborted; waitMs *= 2) {
      if (socket !== undefined) {
        await socket.ended;
        waitMs = timing.firstRedialMs;
      }
      await this.#wait(waitMs);
      socket = await this.#attempt();
      if (this.#stop.signal.aborted) return; // the link may be another dialler's by now
      if (socket !== undefined) continue;
      const error = this.#lastError;
      if (isFinal(error)) this.#link!.lose(error);
      else this.#link!.notReached(error, isRefused(error));
    }
  }

  /** The socket of a connection that works; undefined where there is none, for what stands in lastError. */
  async #attempt(): Promise<FrameSocket | undefined> {
    const { own } = this.#options;
    const session = this.#link?.session ?? this.#fresh;
    const { connectMs, handshakeMs } = this.#options.timing;
    const raw = this.#open();
    const socket = new FrameSocket(raw);
    let late = setTimeout(() => socket.destroy(new Error('no answer')), connectMs);
    raw.once('connect', () => {
      clearTimeout(late);
      // The other side may be content already, and its welcome on the way.
      late = setTimeout(() => socket.giveUp(new Error('no answer')), handshakeMs);
    });
    const onStop = (): void => socket.destroy();
    this.#stop.signal.addEventListener('abort', onStop, { once: true });
    try {
      const met = await dial(socket, own, session);
      const link = this.#link ?? this.#options.linkTo(met.node);
      if (link?.name !== met.node) {
        throw link === undefined ? alreadyConnected(met.node) : otherNode(link.name, met.node);
      }
      this.#link = link;
      if (link.session !== session && link.session.peerId !== null) throw alreadyConnected(met.node);
      link.attach(socket, met, false);
      return socket;
    } catch (error) {
      if (!socket.over) socket.destroy();
      this.#lastError = error;
      if (error instanceof ForgottenError) this.#link?.lose(error);
      return undefined;
    } finally {
      clearTimeout(late);
      this.#stop.signal.removeEventListener('abort', onStop);
    }
  }

  #open(): Socket {
    const { address, tls } = this.#options;
    if (tls === undefined) return connectTcp({ ...address });
    return connectTls({
      ...address,
      ...tls,
      ...(isIP(address.host) === 0 ? { servername: address.host } : {}),
    });
  }

  async #wait(waitMs: number): Promise<void> {
    const { longestRedialMs } = this.#options.timing;
    await sleep(Math.min(waitMs, longestRedialMs), undefined, { signal: this.#stop.signal }).catch(
      () => undefined,
    );
  }

  #notReached(error: unknown): DualPathError {
    const why = error instanceof Error ? error.message : String(error);
    const where = addressText(this.#options.address);
    return new DualPathError(
      'PEER_LOST',
      `no engine could be reached at ${where}: ${why}; start it there (dualpath engine --listen), or name another address`,
      { address: where },
      { cause: error },
    );
  }

  stop(): void {
    this.#stop.abort();
  }
}

/** Trying again would not help. */
function isFinal(error: unknown): error is DualPathError {
  return error instanceof DualPathError && error.code !== 'PEER_LOST';
}

function isRefused(error: unknown): boolean {
  const cause = error instanceof DualPathError ? error.cause : error;
  return cause instanceof Error && 'code' in cause && cause.code === 'ECONNREFUSED';
}

function alreadyConnected(node: string): DualPathError {
  return new DualPathError(
    'INVALID_ARGUMENT',
    `'${node}' is connected already; two engines may not have one name, nor one engine two addresses`,
    { node },
  );
}

function otherNode(expected: string, node: string): DualPathError {
  return new DualPathError('PEER_LOST', `'${node}' answers where '${expected}' was`, { node, expected });
}
