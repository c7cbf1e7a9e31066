import {
  Client,
  credentials,
  Metadata,
  status,
  type ClientDuplexStream,
  type ClientOptions,
  type ServiceError,
} from '@grpc/grpc-js';
import type { MethodDefinition } from '@grpc/grpc-js';
import type { TlsFiles } from '../control/index.js';
import { DualPathError, type ErrorCode } from '../errors/index.js';
import { maxMessageBytes, Sequence } from '../wire/index.js';

/** Where the scheduler is, or may be, and how to prove that one may speak to it. */
export interface EndpointOptions {
  /** host:port of each scheduler; or who knows them at the moment. */
  readonly endpoints: readonly string[] | (() => Promise<readonly string[]>);
  readonly token?: Uint8Array;
  /** `ca` is what the scheduler's certificate is checked with. */
  readonly tls?: Partial<TlsFiles>;
  /** The name in the scheduler's certificate, where it is another than the endpoint's. */
  readonly serverName?: string;
}

export interface ConnectionHooks<Out, In> {
  /** The first message of a stream. */
  hello(): Out;
  /** Throws what ends the stream; another one is opened. */
  received(message: In): void;
  /** The stream has ended and will be opened again. */
  lost(error: DualPathError): void;
  /** It will not: the other side will never have us. */
  refused(error: DualPathError): void;
}

const firstRetryMs = 20;
const longestRetryMs = 2000;
/** Messages that may wait to be sent before more are gathered instead. */
const maxUnsent = 64;

/** What trying again cannot change. */
const hopeless = new Map<number, ErrorCode>([
  [status.INVALID_ARGUMENT, 'INVALID_ARGUMENT'],
  [status.UNAUTHENTICATED, 'UNAUTHENTICATED'],
  [status.PERMISSION_DENIED, 'UNAUTHENTICATED'],
  [status.UNIMPLEMENTED, 'INVALID_ARGUMENT'],
]);

/** A stream to whichever scheduler leads, opened again with back-off whenever it ends. */
export class Connection<Out extends { sequence?: number }, In extends { sequence?: number }> {
  readonly #options: EndpointOptions;
  readonly #method: MethodDefinition<Out, In>;
  readonly #hooks: ConnectionHooks<Out, In>;
  #client: Client | undefined;
  #stream: ClientDuplexStream<Out, In> | undefined;
  #sequence = new Sequence();
  #retryMs = firstRetryMs;
  #timer: NodeJS.Timeout | undefined;
  #attempt = 0;
  #leader: string | undefined;
  #closed = false;
  #paused = false;

  constructor(options: EndpointOptions, method: MethodDefinition<Out, In>, hooks: ConnectionHooks<Out, In>) {
    this.#options = options;
    this.#method = method;
    this.#hooks = hooks;
    void this.#open();
  }

  get connected(): boolean {
    return this.#stream !== undefined;
  }

  /** The peer takes no more at the moment. */
  get congested(): boolean {
    return (this.#stream?.writableLength ?? 0) > maxUnsent;
  }

  get received(): number {
    return this.#sequence.received;
  }

  /** Returns the message's number on this stream; undefined, and nothing is sent, while there is none. */
  send(message: Out): number | undefined {
    if (!this.#stream) return undefined;
    message.sequence = this.#sequence.next();
    this.#stream.write(message);
    return message.sequence;
  }

  /** Ends the stream, to open another. */
  reset(why: DualPathError): void {
    this.#ended(this.#stream, why);
  }

  /** Ends the stream, what was sent on it first, and opens none until `resume`. */
  pause(): void {
    this.#paused = true;
    clearTimeout(this.#timer);
    this.#stream?.end();
  }

  /** Opens another stream, whether there is one or not. */
  resume(why: DualPathError): void {
    const paused = this.#paused;
    this.#paused = false;
    if (this.#stream) this.reset(why);
    else if (paused) this.#again(why);
  }

  async #open(): Promise<void> {
    this.#timer = undefined;
    if (this.#paused) return;
    try {
      const { endpoints } = this.#options;
      const list = typeof endpoints === 'function' ? await endpoints() : endpoints;
      if (this.#closed || this.#paused || this.#stream) return;
      const endpoint = this.#leader ?? list[this.#attempt++ % Math.max(list.length, 1)];
      this.#leader = undefined;
      if (endpoint === undefined) throw new Error('no scheduler is known');
      this.#start(endpoint);
    } catch (cause) {
      const why = cause instanceof Error ? cause.message : String(cause);
      this.#again(new DualPathError('PEER_LOST', `the scheduler cannot be reached: ${why}`, {}, { cause }));
    }
  }

  #start(endpoint: string): void {
    this.#client = openClient(endpoint, this.#options, {
      // A channel of its own, so that closing it ends its connection.
      'grpc.use_local_subchannel_pool': 1,
      'grpc.keepalive_time_ms': 5000,
      'grpc.keepalive_timeout_ms': 5000,
    });
    const metadata = metadataOf(this.#options);
    const { path, requestSerialize, responseDeserialize } = this.#method;
    const stream = this.#client.makeBidiStreamRequest(path, requestSerialize, responseDeserialize, metadata);
    this.#sequence = new Sequence();
    this.#stream = stream;
    stream.on('data', (message: In) => this.#take(stream, message));
    stream.on('error', (error: ServiceError) => this.#ended(stream, errorOfStatus(endpoint, error), error));
    stream.on('end', () =>
      this.#ended(stream, new DualPathError('CLOSED', `${endpoint} has ended the stream`)),
    );
    this.send(this.#hooks.hello());
  }

  #take(stream: ClientDuplexStream<Out, In>, message: In): void {
    if (stream !== this.#stream) return;
    const verdict = this.#sequence.check(message.sequence ?? 0);
    if (verdict === 'drop') return;
    try {
      if (verdict === 'gap') throw new DualPathError('INTERNAL', 'a message of the scheduler is missing');
      this.#retryMs = firstRetryMs;
      this.#hooks.received(message);
    } catch (error) {
      if (error instanceof DualPathError) this.#ended(stream, error);
      else throw error;
    }
  }

  #ended(stream: ClientDuplexStream<Out, In> | undefined, error: DualPathError, cause?: ServiceError): void {
    if (stream === undefined || stream !== this.#stream) return;
    this.#drop();
    if (this.#closed) return;
    const [leader] = cause?.metadata?.get('dualpath-leader') ?? [];
    if (leader !== undefined) this.#leader = String(leader);
    const code = cause && hopeless.get(cause.code);
    if (code === undefined) this.#again(error);
    else this.#hooks.refused(new DualPathError(code, error.message));
  }

  #again(error: DualPathError): void {
    if (this.#closed) return;
    this.#hooks.lost(error);
    if (this.#paused) return;
    // Jitter, so that all do not come at once.
    const delayMs = this.#retryMs * (0.5 + Math.random());
    this.#retryMs = Math.min(2 * this.#retryMs, longestRetryMs);
    this.#timer = setTimeout(() => void this.#open(), delayMs);
  }

  #drop(): void {
    const stream = this.#stream;
    this.#stream = undefined;
    stream?.on('error', () => undefined);
    stream?.cancel();
    this.#client?.close();
    this.#client = undefined;
  }

  /** What has been sent is delivered first, if the other side takes it. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    clearTimeout(this.#timer);
    const stream = this.#stream;
    if (stream) {
      const over = new Promise<void>((resolve) => {
        stream.once('end', resolve);
        stream.once('error', () => resolve());
        setTimeout(resolve, 1000).unref();
      });
      stream.end();
      await over;
    }
    this.#drop();
  }
}

/** A client of one scheduler. */
export function openClient(
  endpoint: string,
  { tls, serverName }: EndpointOptions,
  options: ClientOptions = {},
): Client {
  const channel = tls
    ? credentials.createSsl(tls.ca ?? null, tls.key ?? null, tls.cert ?? null)
    : credentials.createInsecure();
  return new Client(endpoint, channel, {
    'grpc.max_receive_message_length': maxMessageBytes,
    'grpc.max_send_message_length': maxMessageBytes,
    ...(serverName === undefined ? {} : { 'grpc.ssl_target_name_override': serverName }),
    ...options,
  });
}

export function metadataOf({ token }: EndpointOptions): Metadata {
  const metadata = new Metadata();
  if (token) metadata.set('authorization', `Bearer ${Buffer.from(token).toString('utf8').trim()}`);
  return metadata;
}

export function errorOfStatus(endpoint: string, { code, details }: ServiceError): DualPathError {
  return new DualPathError('PEER_LOST', `scheduler ${endpoint}: ${status[code]}: ${details}`, {
    endpoint,
    status: code,
  });
}
