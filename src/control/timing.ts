/** When a control connection is given up, and tried again. Not TCP's own timers: after a long outage those wait for seconds. */
export interface ControlTiming {
  /** A word every so often, so that silence means something. */
  readonly pingMs: number;
  /** Silent this long a socket is given up; the session goes on over the next one. */
  readonly deadMs: number;
  /** Until the other side's system answers: its first packets may have been lost, and TCP tries again later and later. */
  readonly connectMs: number;
  /** From there to the end of the handshake: the other side's process may be slow. */
  readonly handshakeMs: number;
  /** Before the first new attempt to reach the other side; doubles up to the next. */
  readonly firstRedialMs: number;
  readonly longestRedialMs: number;
  /** Not reached this long the other side is lost: longer than an outage that is to be survived. */
  readonly lostMs: number;
  /** The same where the other side's system closed the connection or refuses a new one: its process has ended. */
  readonly goneMs: number;
}

export const controlTiming: ControlTiming = {
  pingMs: 200,
  deadMs: 1000,
  connectMs: 2000,
  handshakeMs: 8000,
  firstRedialMs: 25,
  longestRedialMs: 500,
  lostMs: 30_000,
  goneMs: 3000,
};
