import { status, type Metadata } from '@grpc/grpc-js';
import { DualPathError, isDualPathError } from '../errors/index.js';
import { Sequence, statusOf } from '../wire/index.js';

/** What is used of grpc-js's ServerDuplexStream. */
export interface Duplex<In, Out> {
  readonly metadata: Metadata;
  readonly writableLength: number;
  readonly cancelled: boolean;
  write(message: Out): boolean;
  end(): void;
  on(event: 'data', listener: (message: In) => void): unknown;
  on(event: 'end' | 'cancelled', listener: () => void): unknown;
  on(event: 'error', listener: (error: Error) => void): unknown;
  emit(event: 'error', error: object): boolean;
}

/** Messages that may wait for a peer that reads slowly; then its stream ends, and it may come again. */
const maxUnread = 4096;

/** One stream of the service: numbers its messages, and ends once, for a reason that the other side is told. */
export class ServerStream<In extends { sequence?: number }, Out extends { sequence?: number }> {
  readonly #call: Duplex<In, Out>;
  readonly #sequence = new Sequence();
  readonly #onEnd: () => void;
  #ended = false;

  /** @param onMessage throws what ends the stream @param onEnd once, however it ends */
  constructor(call: Duplex<In, Out>, onMessage: (message: In) => void, onEnd: () => void) {
    this.#call = call;
    this.#onEnd = onEnd;
    call.on('data', (message) => {
      if (this.#ended) return;
      try {
        const verdict = this.#sequence.check(message.sequence ?? 0);
        if (verdict === 'take') onMessage(message);
        else if (verdict === 'gap')
          this.fail(gapError(message.sequence ?? 0, this.#sequence.received), status.ABORTED);
      } catch (error) {
        this.fail(error);
      }
    });
    call.on('end', () => this.close());
    call.on('cancelled', () => this.close());
    call.on('error', () => this.close());
  }

  /** Number of the last message received. */
  get received(): number {
    return this.#sequence.received;
  }

  get ended(): boolean {
    return this.#ended;
  }

  write(message: Out): void {
    if (this.#ended) return;
    message.sequence = this.#sequence.next();
    this.#call.write(message);
    if (this.#call.writableLength <= maxUnread) return;
    this.fail(
      new DualPathError(
        'CAPACITY_EXHAUSTED',
        `${maxUnread} messages wait to be read, the most that may; read faster and connect again`,
      ),
    );
  }

  /** Ends the stream with a status. */
  fail(error: unknown, code = isDualPathError(error) ? statusOf(error.code) : status.INTERNAL): void {
    if (this.#ended) return;
    this.#over();
    const { message } = error instanceof Error ? error : { message: String(error) };
    this.#call.emit('error', { code, details: message });
  }

  close(): void {
    if (this.#ended) return;
    this.#over();
    this.#call.end();
  }

  #over(): void {
    this.#ended = true;
    this.#onEnd();
  }
}

function gapError(sequence: number, received: number): DualPathError {
  return new DualPathError(
    'INVALID_ARGUMENT',
    `message ${sequence} came after message ${received}: number them 1, 2, ... on each stream; connect again`,
    { sequence, received },
  );
}
