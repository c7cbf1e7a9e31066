/** A batch with its number. */
export interface NumberedBatch {
  readonly number: bigint;
  readonly payload: Uint8Array;
}

export interface SequenceSink {
  /** Applies a batch; false if it is malformed. */
  apply(payload: Uint8Array): boolean;
  /** The engine has begun anew, with nothing cached, or what it has is not known. */
  reset(isWhole: boolean): void;
  setWhole(isWhole: boolean): void;
  /** The publisher counts from 0 again: another process, with nothing cached. */
  restarted(): void;
  gap(isFilled: boolean): void;
}

/** Batches that the publisher still has, from this number on. */
export type Replay = (from: bigint) => AsyncIterable<NumberedBatch>;

/** Applies batches in order: what is missing is asked for again, and where it cannot be had, what was known is dropped. */
export class Sequence {
  readonly #sink: SequenceSink;
  readonly #replay: Replay | null;
  #expected: bigint | null = null;
  /** What came before the expected one has been applied. */
  #isJoined = false;
  /** Counts what `forget` did, also while a gap is being filled. */
  #epoch = 0;

  constructor(sink: SequenceSink, replay: Replay | null) {
    this.#sink = sink;
    this.#replay = replay;
  }

  /** The connection broke, and whoever answers next may be another process: all before the next batch is wanted. */
  forget(): void {
    this.#isJoined = false;
    this.#epoch++;
    this.#sink.reset(false);
  }

  /** Not again before it has ended. */
  async take({ number, payload }: NumberedBatch): Promise<void> {
    const expected = this.#expected;
    const epoch = this.#epoch;
    const isRestart = expected !== null && number < expected;
    if (isRestart) this.#sink.restarted();
    if (number === 0n) this.#sink.reset(true);
    else if (expected === null || isRestart || !this.#isJoined) await this.#fill(0n, number);
    else if (number > expected) await this.#fill(expected, number);
    this.#apply(payload);
    this.#expected = number + 1n;
    this.#isJoined = epoch === this.#epoch;
    if (!this.#isJoined) this.#sink.reset(false);
  }

  async #fill(from: bigint, until: bigint): Promise<void> {
    if (from === 0n) this.#sink.reset(false);
    const isFilled = await this.#replayed(from, until);
    this.#sink.gap(isFilled);
    if (!isFilled) this.#sink.setWhole(false);
    else if (from === 0n) this.#sink.setWhole(true);
  }

  async #replayed(from: bigint, until: bigint): Promise<boolean> {
    let next = from;
    let isWhole = true;
    if (this.#replay !== null) {
      for await (const { number, payload } of this.#replay(from)) {
        if (number < next) continue;
        if (number >= until) break;
        if (number > next) isWhole = this.#drop();
        if (!this.#apply(payload)) isWhole = false;
        next = number + 1n;
      }
    }
    if (next < until) isWhole = this.#drop();
    return isWhole;
  }

  /** What was known may have been removed meanwhile. */
  #drop(): false {
    this.#sink.reset(false);
    return false;
  }

  #apply(payload: Uint8Array): boolean {
    const isGood = this.#sink.apply(payload);
    if (!isGood) this.#drop();
    return isGood;
  }
}
