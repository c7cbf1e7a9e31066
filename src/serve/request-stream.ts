import { DualPathError } from '../errors/index.js';
import type { LeaseLedger, LeaseOutcome, LeaseSubmission } from '../leases/index.js';
import type { Assignment, Stage } from '../scheduler/index.js';
import {
  chooseVersion,
  failureMessage,
  stageNumber,
  type RequestEvent,
  type RequestMessage,
  type SubmissionMessage,
} from '../wire/index.js';
import { ServerStream, type Duplex } from './stream.js';

export interface RequestStreamHost {
  readonly ledger: LeaseLedger;
  readonly epoch: number;
  readonly model: string;
  readonly maxWaiting: number;
  readonly maxPayloadBytes: number;
  turn(): void;
  opened(client: string, stream: RequestStream): void;
  closed(client: string, stream: RequestStream): void;
}

const clientPattern = /^[^/]{1,128}$/;

/** The stream of a client: what it asks for, and what is gathered for it until the end of the turn. */
export class RequestStream {
  readonly #host: RequestStreamHost;
  readonly #stream: ServerStream<RequestMessage, RequestEvent>;
  #client: string | undefined;
  #out: RequestEvent | undefined;

  constructor(call: Duplex<RequestMessage, RequestEvent>, host: RequestStreamHost) {
    this.#host = host;
    this.#stream = new ServerStream(
      call,
      (message) => this.#take(message),
      () => {
        if (this.#client !== undefined) host.closed(this.#client, this);
      },
    );
  }

  fail(error: unknown): void {
    this.#stream.fail(error);
  }

  #take(message: RequestMessage): void {
    const { ledger } = this.#host;
    this.#host.turn();
    if (this.#client === undefined) this.#hello(message);
    const client = this.#client!;
    for (const submission of message.submissions ?? []) ledger.submit(client, submissionOf(submission));
    for (const key of message.cancellations ?? []) ledger.cancel(client, key);
    for (const key of message.acknowledgements ?? []) ledger.acknowledge(client, key);
  }

  #hello({ hello }: RequestMessage): void {
    const { ledger, epoch, model, maxWaiting, maxPayloadBytes } = this.#host;
    if (!hello) throw new DualPathError('INVALID_ARGUMENT', 'the first message has no hello; say it first');
    const version = chooseVersion(hello.version);
    const client = hello.client ?? '';
    if (!clientPattern.test(client)) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `'${client.slice(0, 140)}' is no name of a client; give 1 to 128 characters without a slash`,
      );
    }
    this.#host.opened(client, this);
    this.#client = client;
    ledger.attach(client);
    this.#event().welcome = { version, epoch, model, maxWaiting, maxPayloadBytes };
  }

  #event(): RequestEvent {
    return (this.#out ??= {});
  }

  accepted(key: string): void {
    (this.#event().accepted ??= []).push(key);
  }

  refused(key: string, error: DualPathError, retryAfterS: number): void {
    (this.#event().refused ??= []).push({ key, failure: failureMessage(error), retryAfterS });
  }

  progress(key: string, what: Stage | Assignment): void {
    const news = (this.#event().progress ??= []);
    if (typeof what === 'string') news.push({ key, stages: [stageNumber[what]] });
    else news.push({ key, prefillEngine: what.prefillEngine, decodeEngine: what.decodeEngine });
  }

  tokens(key: string, first: number, tokens: Uint32Array): void {
    (this.#event().tokens ??= []).push({ key, first, tokens: [...tokens] });
  }

  ended(key: string, { error, attempts, tokens, decodeEngine }: LeaseOutcome): void {
    (this.#event().ended ??= []).push({
      ...{ key, attempts, tokens },
      ...(error ? { failure: failureMessage(error) } : {}),
      ...(decodeEngine === undefined ? {} : { decodeEngine }),
    });
  }

  flush(): void {
    const out = this.#out;
    if (!out) return;
    this.#out = undefined;
    this.#stream.write(out);
  }
}

function submissionOf(message: SubmissionMessage): LeaseSubmission {
  const { deadlineS = 0, receivedTokens, payload, tenant = '' } = message;
  return {
    key: message.key ?? '',
    model: message.model ?? '',
    promptTokens: message.promptTokens ?? 0,
    hitTokens: message.hitTokens ?? 0,
    maxNewTokens: message.maxNewTokens ?? 0,
    priority: message.priority ?? 0,
    traceparent: message.traceparent ?? '',
    progress: message.progress ?? false,
    ...(tenant === '' ? {} : { tenant }),
    ...(deadlineS === 0 ? {} : { deadlineS }),
    // A view of the received message would keep all of it alive.
    ...(payload && payload.length > 0 ? { payload: Uint8Array.from(payload) } : {}),
    ...(receivedTokens ? { received: Uint32Array.from(receivedTokens) } : {}),
  };
}
