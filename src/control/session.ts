/**
 * What two nodes have told each other, over as many sockets as it takes: messages are numbered, kept until the other
 * side has acknowledged them, and sent again on the next socket; so each arrives once, in order, as long as both
 * sides remember the session. A state machine without clock and I/O.
 */
import { randomBytes } from 'node:crypto';
import { DualPathError } from '../errors/index.js';

export interface SessionLimits {
  /** Messages kept until acknowledged, and their bytes. */
  readonly maxMessages: number;
  readonly maxBytes: number;
}

export const sessionLimits: SessionLimits = { maxMessages: 65_536, maxBytes: 256 * 2 ** 20 };

export interface NumberedMessage {
  /** 1, 2, ... */
  readonly number: number;
  readonly body: Uint8Array;
}

export class Session {
  readonly id = randomBytes(16).toString('hex');
  readonly #limits: SessionLimits;
  #peerId: string | null = null;
  #outbox: NumberedMessage[] = [];
  #outboxBytes = 0;
  #sent = 0;
  /** Of the outbox: what this socket has been given. */
  #given = 0;
  #received = 0;

  constructor(limits: SessionLimits = sessionLimits) {
    this.#limits = limits;
  }

  /** The other side's session, once both have met. */
  get peerId(): string | null {
    return this.#peerId;
  }
  /** Number of the last message taken in: what is acknowledged. */
  get received(): number {
    return this.#received;
  }
  get outboxBytes(): number {
    return this.#outboxBytes;
  }
  get unacknowledged(): number {
    return this.#outbox.length;
  }

  /** Whether a session that the other side calls `peerId` is this one; otherwise this one is over. */
  goesOnWith(peerId: string): boolean {
    return this.#peerId === null || this.#peerId === peerId;
  }

  bind(peerId: string): void {
    if (!this.goesOnWith(peerId)) {
      throw new DualPathError('INTERNAL', 'a session cannot change its other side');
    }
    this.#peerId = peerId;
  }

  /** @throws CAPACITY_EXHAUSTED when the other side has acknowledged nothing for too long */
  push(body: Uint8Array): void {
    const { maxMessages, maxBytes } = this.#limits;
    if (this.#outbox.length >= maxMessages || this.#outboxBytes + body.length > maxBytes) {
      throw new DualPathError(
        'CAPACITY_EXHAUSTED',
        `${this.#outbox.length} messages of ${this.#outboxBytes} bytes wait to be acknowledged; ` +
          `${maxMessages} messages and ${maxBytes} bytes may`,
        { messages: this.#outbox.length, limit_messages: maxMessages, limit_bytes: maxBytes },
      );
    }
    this.#outbox.push({ number: ++this.#sent, body });
    this.#outboxBytes += body.length;
  }

  /** The next message for this socket. */
  next(): NumberedMessage | undefined {
    const message = this.#outbox[this.#given];
    if (message !== undefined) this.#given++;
    return message;
  }

  /** Everything up to `number` has arrived. @throws INVALID_ARGUMENT for what was never sent */
  acknowledged(number: number): void {
    const first = this.#outbox[0]?.number ?? this.#sent + 1;
    if (number > this.#sent) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `message ${number} is acknowledged, ${this.#sent} have been sent`,
      );
    }
    const count = Math.max(0, number - first + 1);
    for (const { body } of this.#outbox.splice(0, count)) this.#outboxBytes -= body.length;
    this.#given = Math.max(0, this.#given - count);
  }

  /** A new socket: what the other side does not have yet goes over it from the first. */
  resume(acknowledged: number): void {
    this.acknowledged(acknowledged);
    this.#given = 0;
  }

  /** True when the message is to be taken in; false when it has been before. @throws INVALID_ARGUMENT for a gap */
  accept(number: number): boolean {
    if (number <= this.#received) return false;
    if (number !== this.#received + 1) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `message ${number} came after message ${this.#received}: something is missing`,
      );
    }
    this.#received = number;
    return true;
  }
}
