/**
 * The life of one connection to a peer in one traffic class: a state machine without a clock and without I/O. It says
 * what to do next; whoever drives it does it and tells what came of it.
 *
 *   idle -> connecting -> ready -> draining -> waiting -> connecting ...
 *
 * Remote causes (the peer, the path) lead to waiting and a new attempt, later each time; local ones (a fault here
 * that an attempt would only repeat) to failed. A queue pair is never used again: after draining it is destroyed and a new
 * one is built.
 */
export type ConnectionState = 'idle' | 'connecting' | 'ready' | 'draining' | 'waiting' | 'failed';
export type Blame = 'local' | 'remote';
/** `connect`: handshake through the GID candidate of this number (modulo how many there are). `drain`: to the error state. */
export type ConnectionAction =
  { readonly do: 'connect'; readonly candidate: number } | { readonly do: 'drain' };

export interface ConnectionOptions {
  /** Before the first new attempt; doubles with each up to the next. */
  readonly firstBackOffMs?: number;
  /** Short, so that traffic is back soon after the path is. */
  readonly longestBackOffMs?: number;
  /** Attempts in a row that may fail before requests are told that the peer is lost. */
  readonly maxAttempts?: number;
  /** A connection that was ready this long has recovered: its back-off begins anew. */
  readonly stableMs?: number;
  /** Unused this long it is closed. */
  readonly idleMs?: number;
}

const defaults: Required<ConnectionOptions> = {
  firstBackOffMs: 10,
  longestBackOffMs: 1000,
  maxAttempts: 64,
  stableMs: 1000,
  idleMs: 60_000,
};

export class Connection {
  readonly #options: Required<ConnectionOptions>;
  #state: ConnectionState = 'idle';
  #attempts = 0;
  #candidate = 0;
  #everReady = false;
  #readyMs = 0;
  #usedMs = 0;
  #retryMs = 0;
  #afterDrain: 'idle' | 'waiting' | 'failed' = 'idle';
  #cause: Blame | null = null;
  #held = false;

  constructor(options: ConnectionOptions = {}) {
    this.#options = { ...defaults, ...options };
  }

  get state(): ConnectionState {
    return this.#state;
  }
  /** Of the failure that made it wait or fail. */
  get cause(): Blame | null {
    return this.#cause;
  }
  get usedMs(): number {
    return this.#usedMs;
  }
  /** Somebody has use of it: it is not closed as idle, nor to make room. */
  get held(): boolean {
    return this.#held;
  }
  /** When tick() has something to do; Infinity: never by time alone. */
  get dueMs(): number {
    if (this.#state === 'waiting') return this.#retryMs;
    return this.#state === 'ready' && !this.held ? this.#usedMs + this.#options.idleMs : Infinity;
  }

  /** A request needs it. It may be posted at once when the state is then `ready`. */
  use(nowMs: number): ConnectionAction | null {
    this.#usedMs = nowMs;
    const lost = this.#state === 'failed' && this.#cause === 'remote';
    if (this.#state !== 'idle' && !lost) return null;
    this.#attempts = 0;
    return this.#connect();
  }

  setHeld(held: boolean, nowMs: number): void {
    this.#held = held;
    this.#usedMs = nowMs;
  }

  /** The other side makes it, on its own initiative. False while an earlier one has not drained here. */
  accept(nowMs: number): boolean {
    if (this.#state === 'ready' || this.#state === 'draining') return false;
    if (this.#state !== 'connecting') this.#connect();
    this.#usedMs = nowMs;
    return true;
  }

  connected(nowMs: number): void {
    if (this.#state !== 'connecting') return;
    this.#state = 'ready';
    this.#readyMs = this.#usedMs = nowMs;
    this.#everReady = true;
    this.#cause = null;
  }

  /** The handshake or the state changes of the queue pair failed; its queue pair has been destroyed. */
  connectFailed(nowMs: number, blame: Blame): void {
    if (this.#state !== 'connecting') return;
    // A GID that has never worked may be the wrong one; one that has is right, and the peer is away.
    if (!this.#everReady) this.#candidate++;
    this.#end(nowMs, this.#next(blame));
  }

  /** Nobody has use of it any more: no attempt is made. */
  giveUp(): void {
    if (this.#state === 'connecting' || this.#state === 'waiting') this.#state = 'idle';
  }

  /** Its queue pair reported its first error, and drains. */
  broke(nowMs: number, blame: Blame): void {
    if (this.#state !== 'ready') return;
    if (nowMs - this.#readyMs >= this.#options.stableMs) this.#attempts = 0;
    this.#afterDrain = this.#next(blame);
    this.#state = 'draining';
  }

  /** Nothing is in flight any more and the queue pair has been destroyed. */
  drained(nowMs: number): void {
    if (this.#state === 'draining') this.#end(nowMs, this.#afterDrain);
  }

  /** The port works again: an attempt need not wait. (It may still be too early; then the back-off goes on.) */
  pathReturned(nowMs: number): void {
    if (this.#state === 'waiting') this.#retryMs = nowMs;
  }

  tick(nowMs: number): ConnectionAction | null {
    if (nowMs < this.dueMs) return null;
    return this.#state === 'waiting' ? this.#connect() : this.close();
  }

  /** No longer wanted. */
  close(): ConnectionAction | null {
    if (this.#state === 'ready') {
      this.#afterDrain = 'idle';
      this.#state = 'draining';
      return { do: 'drain' };
    }
    if (this.#state === 'waiting') this.#state = 'idle';
    if (this.#state === 'draining') this.#afterDrain = 'idle';
    return null;
  }

  #connect(): ConnectionAction {
    this.#state = 'connecting';
    this.#attempts++;
    return { do: 'connect', candidate: this.#candidate };
  }

  #next(blame: Blame): 'waiting' | 'failed' {
    this.#cause = blame;
    return blame === 'local' || this.#attempts >= this.#options.maxAttempts ? 'failed' : 'waiting';
  }

  #end(nowMs: number, state: 'idle' | 'waiting' | 'failed'): void {
    this.#state = state;
    const { firstBackOffMs, longestBackOffMs } = this.#options;
    const doublings = Math.min(30, Math.max(0, this.#attempts - 1));
    if (state === 'waiting')
      this.#retryMs = nowMs + Math.min(longestBackOffMs, firstBackOffMs * 2 ** doublings);
  }
}
