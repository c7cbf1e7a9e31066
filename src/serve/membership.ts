/** Which of several schedulers leads; one alone does. */

export interface Leadership {
  /** Larger than that of every scheduler before it, and at least the Unix time in seconds. */
  readonly epoch: number;
  /** Where another may have led in the same epoch: the share of it that was over; default 0. */
  readonly epochShare?: number;
  /** Aborted when another may lead: nothing may be assigned any more. */
  readonly lost: AbortSignal;
  release(): Promise<void>;
}

export interface Membership {
  /** Resolves when this scheduler leads. @throws when the signal is aborted first */
  lead(signal: AbortSignal): Promise<Leadership>;
  /** Where the leader listens, if it is known. */
  leader(): string | undefined;
  close(): Promise<void>;
}

/** The epoch after `previous`. */
export function nextEpoch(previous: number): number {
  return Math.max(previous + 1, Math.floor(Date.now() / 1000));
}

/** The only scheduler: it leads at once. Its epoch is the time of its start. */
export class AloneMembership implements Membership {
  readonly #forever = new AbortController();
  #epoch = 0;

  lead(): Promise<Leadership> {
    const epochShare = (Date.now() % 1000) / 1000;
    this.#epoch = nextEpoch(this.#epoch);
    return Promise.resolve({
      ...{ epoch: this.#epoch, epochShare },
      lost: this.#forever.signal,
      release: () => Promise.resolve(),
    });
  }

  leader(): undefined {
    return undefined;
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}
