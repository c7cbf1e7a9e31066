/** What an engine keeps about its way to a peer in one traffic class, beside the state machine of the connection. */
import { DualPathError } from '../errors/index.js';
import type { TrafficClassName } from './classes.js';
import type { PathHello } from './path.js';

interface Waiter {
  resolve(): void;
  reject(error: DualPathError): void;
}

export class PathState {
  readonly peer: string;
  readonly trafficClass: TrafficClassName;
  /** Of this side's queue pair at the native half. */
  connection: number | undefined;
  /** Names the queue pairs of both sides, from the offer on. */
  attempt: string | undefined;
  /** What this side has said of its queue pair. */
  hello: PathHello | undefined;
  /** Users of this side; and whether the other has any. */
  users = 0;
  peerHolds = false;
  /** Why there is no connection. */
  cause: DualPathError | undefined;
  /** When it was lost. */
  brokeMs: number | undefined;
  #waiters = new Set<Waiter>();
  #handshake: NodeJS.Timeout | undefined;

  constructor(peer: string, trafficClass: TrafficClassName) {
    this.peer = peer;
    this.trafficClass = trafficClass;
  }

  get held(): boolean {
    return this.users > 0 || this.peerHolds;
  }

  startHandshake(limitMs: number, late: () => void): void {
    clearTimeout(this.#handshake);
    this.#handshake = setTimeout(late, limitMs);
  }

  endHandshake(): void {
    clearTimeout(this.#handshake);
  }

  /** Resolves when there is a connection. @throws CANCELLED by the signal, and why there will be none */
  async ready(signal: AbortSignal | undefined): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      const over = (): void => {
        this.#waiters.delete(waiter);
        signal?.removeEventListener('abort', onAbort);
      };
      const waiter: Waiter = {
        resolve: () => {
          over();
          resolve();
        },
        reject: (error) => {
          over();
          reject(error);
        },
      };
      const onAbort = (): void =>
        waiter.reject(new DualPathError('CANCELLED', `no connection to '${this.peer}' is wanted any more`));
      if (signal?.aborted === true) {
        onAbort();
        return;
      }
      signal?.addEventListener('abort', onAbort);
      this.#waiters.add(waiter);
    });
  }

  succeed(): void {
    for (const waiter of [...this.#waiters]) waiter.resolve();
  }

  fail(error: DualPathError): void {
    for (const waiter of [...this.#waiters]) waiter.reject(error);
  }
}
