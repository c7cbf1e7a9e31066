/** When a control connection is given up, and tried again. Not TCP's own timers: after a long outage those wait for seconds. */
export interface ControlTiming {
  /** A word every so often, so that silence means something. */
  readonly pingMs: number;
  /** Silent this long a socket is given up; the session goes on over the next one. */
  readonly deadMs: number;
  /** From the first packet to the end of the handshake. */
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
  handshakeMs: 2000,
  firstRedialMs: 25,
  longestRedialMs: 500,
  lostMs: 30_000,
  goneMs: 3000,
};
