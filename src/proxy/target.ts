import type { Instance, Router } from '../router/index.js';
import type { Attempt } from './attempt.js';
import { Crowd } from './crowd.js';
import type { Replica } from './replica.js';

/** Why a target is passed over. */
export type EjectReason = 'down' | 'failing' | 'hung' | 'slow';

export interface Ejection {
  readonly reason: EjectReason;
  readonly untilMs: number;
  /** How long it will be the next time. */
  readonly nextMs: number;
}

/** Failures in a row that eject. */
const failuresMax = 3;
/** Observations of prefills fade by this much with each new one. */
const fade = 0.8;

/**
 * What requests go to: an endpoint and one of its data-parallel ranks. The routers' instance of the same name is its
 * account in the ledger, one for each model that it serves.
 */
export class Target {
  readonly name: string;
  readonly replica: Replica;
  /** Null where the server chooses among its ranks, or has one. */
  readonly rank: number | null;
  readonly accounts = new Map<string, { readonly router: Router; readonly instance: Instance }>();
  readonly attempts = new Crowd<Attempt>();
  ejection: Ejection | null = null;
  /** Of the last ejection, whose length the next one doubles. */
  lastEjection: Ejection | null = null;
  failures = 0;
  /** Tokens that wait there and come from others, by its metrics and by what other routers say. */
  reportedTokens = 0;
  peerTokens = 0;
  /** When bytes last came, or it last became busy. */
  aliveMs = 0;
  /** Counters as last polled, and when they last grew; null: it has reported none so far. */
  progress: number | null = null;
  progressMs = 0;
  /** When counters were last polled with success. */
  countersMs = 0;
  #observedS = 0;
  #expectedS = 0;
  #samples = 0;

  constructor(replica: Replica, rank: number | null) {
    this.replica = replica;
    this.rank = rank;
    this.name = rank === null ? replica.name : `${replica.name}#${rank}`;
  }

  get foreignTokens(): number {
    return Math.max(this.reportedTokens, this.peerTokens);
  }

  get isEjected(): boolean {
    return this.ejection !== null;
  }

  /** The attempt's ticket. */
  began(attempt: Attempt, nowMs: number): number {
    if (this.attempts.size === 0) this.aliveMs = nowMs;
    return this.attempts.add(attempt);
  }

  succeeded(): void {
    this.failures = 0;
  }

  /** Whether it has now failed too often. */
  failed(): boolean {
    return ++this.failures >= failuresMax;
  }

  /** A prefill took so long, and should have taken so long. */
  observe(tookS: number, expectedS: number): void {
    this.#observedS = fade * this.#observedS + tookS;
    this.#expectedS = fade * this.#expectedS + expectedS;
    this.#samples++;
  }

  forgetSpeed(): void {
    this.#observedS = this.#expectedS = this.#samples = 0;
  }

  /** How many times longer prefills take than expected, what has run since `runningS` included; null: not known yet. */
  slowness(runningS: number, runningExpectedS: number): number | null {
    const observedS = this.#observedS + Math.max(0, runningS);
    const expectedS = this.#expectedS + runningExpectedS;
    if (this.#samples + (runningS > 0.5 ? 1 : 0) === 0) return null;
    // Below a tenth of a second, noise says more than speed.
    return (observedS + 0.1) / (expectedS + 0.1);
  }
}
