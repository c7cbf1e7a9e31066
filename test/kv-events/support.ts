import { encode } from '@msgpack/msgpack';
import { Publisher, Router } from 'zeromq';
import { PromptKeys, type CanonicalPrompt, type KeyedPrompt } from '../../src/openai/index.js';

export const blockTokens = 8;
export const keys = new PromptKeys({ blockTokens, bytesPerToken: 4, secret: new Uint8Array(32).fill(7) });

/** A prompt of these ids. */
export function promptOf(ids: readonly number[], salt = ''): CanonicalPrompt {
  return {
    model: 'emulated',
    adapter: '',
    stream: false,
    previousResponseId: null,
    namesRank: false,
    maxOutputTokens: null,
    scope: JSON.stringify(['emulated', '', salt, '']),
    content: Uint32Array.from(ids),
    extraTextBytes: 0,
    extraTokens: 0,
  };
}

/** The keys of ids as the router has them. */
export function keyed(ids: readonly number[], rest: { salt?: string; tenant?: string } = {}): KeyedPrompt {
  return keys.keysOf(promptOf(ids, rest.salt), rest.tenant ?? '');
}

/** BlockStored as msgspec writes it: earlier versions as a list, later ones as a map. */
export function stored(
  hashes: readonly unknown[],
  parent: unknown,
  ids: readonly number[],
  size: number,
  rest: Record<string, unknown> = {},
  form: 'list' | 'map' = 'map',
): unknown {
  if (form === 'list') return ['BlockStored', hashes, parent, ids, size, rest['lora_id'] ?? null];
  return {
    type: 'BlockStored',
    block_hashes: hashes,
    parent_block_hash: parent,
    token_ids: ids,
    block_size: size,
    lora_id: null,
    medium: 'GPU',
    lora_name: null,
    ...rest,
  };
}

export function batch(events: readonly unknown[], form: 'list' | 'map' = 'map'): Uint8Array {
  const value = form === 'list' ? [1.5, events, 0] : { ts: 1.5, events, data_parallel_rank: 0 };
  return encode(value, { useBigInt64: true });
}

/** A publisher of the wire format, with a buffer for replays. */
export class TestPublisher {
  readonly #replies = new Router({ linger: 0 });
  readonly sent: Uint8Array[] = [];
  /** Replays begin here. */
  firstKept = 0;
  replays = 0;
  #socket = new Publisher({ linger: 0 });
  #sending: Promise<void> = Promise.resolve();
  #port = 0;
  replayEndpoint = '';

  static async open(): Promise<TestPublisher> {
    const publisher = new TestPublisher();
    await publisher.#bind('tcp://127.0.0.1:*');
    await publisher.#replies.bind('tcp://127.0.0.1:*');
    publisher.replayEndpoint = publisher.#replies.lastEndpoint!;
    void publisher.#serve();
    return publisher;
  }

  get endpoint(): string {
    return `tcp://127.0.0.1:${this.#port}`;
  }

  async send(payload: Uint8Array, isLost = false): Promise<void> {
    this.sent.push(payload);
    if (!isLost) await this.sendFrames(['', number(this.sent.length - 1), payload]);
  }

  /** A socket takes one message at a time. */
  sendFrames(frames: (string | Uint8Array)[]): Promise<void> {
    this.#sending = this.#sending.then(() => (this.#socket.closed ? undefined : this.#socket.send(frames)));
    return this.#sending;
  }

  /** Another process at the same place, that counts from 0. */
  async restart(): Promise<void> {
    await this.#sending;
    // Closing alone leaves the address taken for a while.
    await this.#socket.unbind(this.endpoint);
    this.#socket.close();
    this.#socket = new Publisher({ linger: 0 });
    this.sent.length = 0;
    await this.#bind(this.endpoint);
  }

  close(): void {
    this.#socket.close();
    this.#replies.close();
  }

  async #bind(endpoint: string): Promise<void> {
    await this.#socket.bind(endpoint);
    this.#port = Number(new URL(this.#socket.lastEndpoint!).port);
  }

  async #serve(): Promise<void> {
    try {
      for await (const [client, delimiter, from] of this.#replies) {
        this.replays++;
        const first = Math.max(this.firstKept, Number(from!.readBigUInt64BE()));
        for (let i = first; i < this.sent.length; i++) {
          await this.#replies.send([client!, delimiter!, number(i), this.sent[i]!]);
        }
        await this.#replies.send([client!, '', Buffer.alloc(8, 0xff), '']);
      }
    } catch {
      // Closed.
    }
  }
}

export function number(value: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(BigInt(value));
  return bytes;
}
