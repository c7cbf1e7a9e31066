import type * as ZeroMq from 'zeromq';
import { DualPathError } from '../errors/index.js';
import type { NumberedBatch } from './sequence.js';

export interface Endpoints {
  /** Of the publisher, `tcp://host:port`. */
  readonly endpoint: string;
  /** Where batches can be asked for again; undefined: nowhere. */
  readonly replay?: string | undefined;
  readonly topic?: string | undefined;
}

/** Limits of a socket: messages and their bytes. */
const messagesMax = 10_000;
const messageBytesMax = 16 * 1024 * 1024;
/** zmq's own timers, in ms: connecting again, and telling that nobody is there. */
const timers = {
  reconnectInterval: 500,
  reconnectMaxInterval: 10_000,
  heartbeatInterval: 5000,
  heartbeatTimeout: 15_000,
};
const replayTimeoutMs = 2000;
const replayBatchesMax = 100_000;
/** The number of the message that ends a replay: -1. */
const replayEnd = 0xffff_ffff_ffff_ffffn;

type Zmq = typeof ZeroMq;

/** Loaded only where somebody wants events: a peer dependency. @throws INVALID_ARGUMENT where it is not there */
export async function loadZmq(): Promise<Zmq> {
  try {
    return await import('zeromq');
  } catch (error) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `KV events need the package zeromq, which cannot be loaded: npm install zeromq (${String(error)})`,
    );
  }
}

/** A subscription to one publisher, which connects again by itself. */
export class Subscription {
  readonly #zmq: Zmq;
  readonly #endpoints: Endpoints;
  readonly #socket: ZeroMq.Subscriber;
  #dealer: ZeroMq.Dealer | null = null;

  constructor(zmq: Zmq, endpoints: Endpoints, onDisconnect: () => void) {
    this.#zmq = zmq;
    this.#endpoints = endpoints;
    this.#socket = new zmq.Subscriber({
      receiveHighWaterMark: messagesMax,
      maxMessageSize: messageBytesMax,
      linger: 0,
      ...timers,
    });
    this.#socket.events.on('disconnect', onDisconnect);
    this.#socket.connect(endpoints.endpoint);
    this.#socket.subscribe(endpoints.topic ?? '');
  }

  /** Null: a message that is none of a publisher's. Ends when the subscription is closed. */
  async *batches(): AsyncGenerator<NumberedBatch | null> {
    for await (const frames of this.#socket) {
      yield frames.length === 3 ? batchOf(frames[1]!, frames[2]!) : null;
    }
  }

  /** What the publisher still has from a number on. Ends early where it does not answer. */
  async *replay(from: bigint): AsyncGenerator<NumberedBatch> {
    const { replay } = this.#endpoints;
    if (replay === undefined || this.#socket.closed) return;
    // A DEALER speaks to the publisher's ROUTER as a REQ does, and may be answered more than once.
    const dealer = new this.#zmq.Dealer({
      receiveTimeout: replayTimeoutMs,
      sendTimeout: replayTimeoutMs,
      maxMessageSize: messageBytesMax,
      linger: 0,
    });
    this.#dealer = dealer;
    try {
      dealer.connect(replay);
      const number = Buffer.alloc(8);
      number.writeBigUInt64BE(from);
      await dealer.send(['', number]);
      for (let i = 0; i < replayBatchesMax; i++) {
        const frames = await dealer.receive();
        // A topic may stand before the number.
        const batch = frames.length < 2 ? null : batchOf(frames.at(-2)!, frames.at(-1)!);
        if (batch === null || batch.number === replayEnd) return;
        yield batch;
      }
    } catch {
      // No answer, or closed: the caller sees what is missing.
    } finally {
      this.#dealer = null;
      dealer.close();
    }
  }

  close(): void {
    this.#dealer?.close();
    this.#socket.close();
  }
}

function batchOf(number: Buffer, payload: Buffer): NumberedBatch | null {
  return number.length === 8 ? { number: number.readBigUInt64BE(), payload } : null;
}
