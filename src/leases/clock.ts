/**
 * Time as the ledger counts it: the caller's monotonic clock, in seconds, never backwards and never by more than a
 * bounded step. A process that was stopped for an hour must not end every lease before it has read what engines said
 * in the meantime.
 */
export class BoundedClock {
  nowS = 0;
  leaps = 0;
  readonly #maxStepS: number;
  #lastS: number | undefined;

  constructor(maxStepS: number) {
    this.#maxStepS = maxStepS;
  }

  /** Returns the leap: seconds by which the caller's clock went beyond what is allowed, negative when it went back. */
  advance(callerS: number): number {
    const stepS = Number.isFinite(callerS) ? callerS - (this.#lastS ?? callerS) : 0;
    if (Number.isFinite(callerS)) this.#lastS = callerS;
    const takenS = Math.min(Math.max(stepS, 0), this.#maxStepS);
    this.nowS += takenS;
    const leapS = stepS - takenS;
    if (leapS !== 0) this.leaps++;
    return leapS;
  }
}
