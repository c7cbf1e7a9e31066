/**
 * Times during which an engine had something to send to a peer and nothing got through: its connection was broken and wanted,
 * or requests were in flight and none completed. A state machine that is shown each way now and then.
 */
export interface WayNow {
  readonly peer: string;
  readonly ready: boolean;
  /** Somebody has use of it. */
  readonly held: boolean;
  /** Names the queue pair; and what it has completed and has in flight. */
  readonly connection: number | undefined;
  readonly completions: number;
  readonly inFlightBytes: number;
  /** Why it broke the last time. */
  readonly cause: string | undefined;
}

/** `cause`: why the connection broke meanwhile; undefined: it did not, its requests were late. */
export type OutageEnded = (peer: string, outageMs: number, cause: string | undefined) => void;

interface Seen {
  connection: number | undefined;
  completions: number;
  /** When it last moved, or had nothing to move. */
  movedMs: number;
  out: boolean;
  cause: string | undefined;
}

/** Longer than any completion takes on a path that works, shorter than a queue pair's time-out. */
export const stalledMs = 250;

export class OutageWatch {
  readonly #ended: OutageEnded;
  readonly #seen = new Map<string, Seen>();

  constructor(ended: OutageEnded) {
    this.#ended = ended;
  }

  look(nowMs: number, ways: readonly WayNow[]): void {
    for (const way of ways) this.#look(nowMs, way);
    const peers = new Set(ways.map(({ peer }) => peer));
    for (const peer of this.#seen.keys()) if (!peers.has(peer)) this.#seen.delete(peer);
  }

  #look(nowMs: number, { peer, ready, held, connection, completions, inFlightBytes, cause }: WayNow): void {
    const before = this.#seen.get(peer);
    if (!held && !ready) {
      this.#seen.delete(peer); // an outage that nobody waits for is none
      return;
    }
    if (before === undefined) {
      this.#seen.set(peer, { connection, completions, movedMs: nowMs, out: false, cause: undefined });
      return;
    }
    const moved = ready && (inFlightBytes === 0 || completions !== before.completions);
    const rebuilt = connection !== before.connection;
    before.completions = completions;
    before.connection = connection;
    if (rebuilt || !ready) before.cause = cause;
    if (moved && !(rebuilt && inFlightBytes > 0 && completions === 0)) {
      if (before.out) this.#ended(peer, nowMs - before.movedMs, before.cause);
      before.movedMs = nowMs;
      before.out = false;
      before.cause = undefined;
    } else if (nowMs - before.movedMs >= stalledMs) {
      before.out = true;
    }
  }
}

const everyMs = 50;

/** Shows them from now on. @returns what ends it */
export function watchOutages(ways: () => readonly WayNow[], ended: OutageEnded | undefined): () => void {
  if (ended === undefined) return () => undefined;
  const watch = new OutageWatch(ended);
  const timer = setInterval(() => watch.look(performance.now(), ways()), everyMs).unref();
  return () => clearInterval(timer);
}
