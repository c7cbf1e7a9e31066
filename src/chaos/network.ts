import { Sequence } from '../wire/index.js';
import type { World } from './world.js';

/** Shares of messages that something happens to, and how long they take. */
export interface NetworkFaults {
  loss: number;
  duplicate: number;
  /** Taken over by those sent after it. */
  reorder: number;
  longestDelayS: number;
}

interface Side<T> {
  readonly take: (message: T) => void;
  readonly broken: () => void;
  readonly sequence: Sequence;
  /** When the last message that was sent in order arrives. */
  lastS: number;
}

/**
 * A stream between a peer and the scheduler. Messages arrive in order unless a fault has it otherwise; the receiver
 * finds out by their numbers, as the service does, and breaks the stream. What was under way on a broken stream may
 * still be thrown at its ends: they do not take it.
 */
export class Stream<Up, Down> {
  readonly #world: World;
  readonly #faults: NetworkFaults;
  readonly #up: Side<Up>;
  readonly #down: Side<Down>;
  broken = false;

  constructor(
    world: World,
    faults: NetworkFaults,
    scheduler: { take(message: Up): void; broken(): void },
    peer: { take(message: Down): void; broken(): void },
  ) {
    this.#world = world;
    this.#faults = faults;
    this.#up = { ...scheduler, sequence: new Sequence(), lastS: 0 };
    this.#down = { ...peer, sequence: new Sequence(), lastS: 0 };
  }

  /** Returns the number of the message. */
  toScheduler(message: Up): number {
    return this.#send(this.#up, message);
  }

  toPeer(message: Down): number {
    return this.#send(this.#down, message);
  }

  /** Either side ends it, or it breaks; each side hears of it in its own time. */
  break(): void {
    if (this.broken) return;
    this.broken = true;
    for (const { broken } of [this.#up, this.#down]) {
      this.#world.after(this.#world.between(0, this.#faults.longestDelayS), broken);
    }
  }

  #send<T>(side: Side<T>, message: T): number {
    const number = side.sequence.next();
    const { loss, duplicate, reorder, longestDelayS } = this.#faults;
    const world = this.#world;
    if (world.chance(loss)) return number;
    const arrive = (): void => this.#arrive(side, number, message);
    const delayS = world.between(0.0001, longestDelayS);
    if (world.chance(duplicate)) world.after(delayS * world.between(1, 3), arrive);
    if (world.chance(reorder)) {
      world.after(delayS, arrive);
      return number;
    }
    side.lastS = Math.max(side.lastS, world.nowS + delayS);
    world.after(side.lastS - world.nowS, arrive);
    return number;
  }

  #arrive<T>(side: Side<T>, number: number, message: T): void {
    if (this.broken) return;
    const verdict = side.sequence.check(number);
    if (verdict === 'take') side.take(message);
    else if (verdict === 'gap') this.break();
  }
}
