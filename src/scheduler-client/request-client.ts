import { randomUUID } from 'node:crypto';
import { DualPathError } from '../errors/index.js';
import {
  errorOf,
  protocolVersions,
  schedulerService,
  Turn,
  stagesOf,
  type RequestEvent,
  type RequestMessage,
  type SubmissionMessage,
} from '../wire/index.js';
import { SpanKind } from '@opentelemetry/api';
import { endSpan, parentOf, traceparentOf, tracerOf } from '../tracing/index.js';
import { Connection, type EndpointOptions } from './connection.js';
import { Submitted, type RequestOutcome, type SubmissionOptions } from './submitted.js';

export interface RequestClientOptions extends EndpointOptions {
  /** Scope of the keys, the same after a restart of the client; default: a random one. */
  readonly client?: string;
  /** What submissions ask for that name no model. */
  readonly model: string;
  /** Most requests that have not ended; default 262,144. */
  readonly maxOpen?: number;
}

const maxBatch = 1024;

/**
 * A front end's side: submits requests, hears of their tokens and their ends, each once. After a lost connection or a
 * restarted scheduler whatever has not ended is submitted again under its key.
 */
export class RequestClient {
  readonly client: string;
  readonly #options: RequestClientOptions;
  readonly #open = new Map<string, Submitted>();
  readonly #connection: Connection<RequestMessage, RequestEvent>;
  readonly #turn = new Turn(() => this.#flush());
  /** Not sent on this stream yet. */
  #unsent: Submitted[] = [];
  #cancellations: string[] = [];
  #acknowledgements: string[] = [];
  readonly #tracer = tracerOf();
  #welcomed = false;
  #ended: DualPathError | undefined;

  constructor(options: RequestClientOptions) {
    this.#options = options;
    this.client = options.client ?? `client-${randomUUID()}`;
    this.#connection = new Connection<RequestMessage, RequestEvent>(options, schedulerService.Requests, {
      hello: () => ({ hello: { version: protocolVersions, client: this.client } }),
      received: (event) => this.#received(event),
      lost: () => {
        this.#welcomed = false;
      },
      refused: (error) => this.#end(error),
    });
  }

  /**
   * Submits a request.
   *
   * @throws CAPACITY_EXHAUSTED (too many open here), INVALID_ARGUMENT (a key that is open), CLOSED. What the scheduler
   * refuses rejects `accepted` and `ended`: INVALID_ARGUMENT, REQUEST_TOO_LARGE, CAPACITY_EXHAUSTED with
   * `retry_after_s` in its details.
   */
  submit(options: SubmissionOptions): Submitted {
    if (this.#ended) throw this.#ended;
    const key = options.key ?? randomUUID();
    const limit = this.#options.maxOpen ?? 262_144;
    if (this.#open.size >= limit) {
      throw new DualPathError(
        'CAPACITY_EXHAUSTED',
        `${limit} requests of this client have not ended, the most that may`,
        {
          limit,
        },
      );
    }
    if (this.#open.has(key)) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `key '${key}' has not ended: give every request its own key`,
      );
    }
    const submitted = new Submitted(key, this.#traced(key, options), () => this.#cancel(key));
    this.#open.set(key, submitted);
    this.#unsent.push(submitted);
    this.#turn.ask();
    return submitted;
  }

  /** With a span from here to the outcome, where somebody records spans. */
  #traced(key: string, options: SubmissionOptions): SubmissionOptions {
    if (!this.#tracer) return options;
    const { promptTokens, hitTokens, maxNewTokens, tenant, traceparent } = options;
    const span = this.#tracer.startSpan(
      'dualpath request',
      {
        kind: SpanKind.CLIENT,
        attributes: {
          'dualpath.request': `${this.client}/${key}`,
          'dualpath.prompt_tokens': promptTokens,
          'dualpath.hit_tokens': hitTokens,
          'dualpath.max_new_tokens': maxNewTokens,
          ...(tenant === undefined ? {} : { 'dualpath.tenant': tenant }),
        },
      },
      parentOf(traceparent),
    );
    const onEnded = (error: Error | undefined, outcome?: RequestOutcome): void => {
      options.onEnded?.(error, outcome);
      if (outcome)
        span.setAttributes({ 'dualpath.attempts': outcome.attempts, 'dualpath.tokens': outcome.tokens });
      endSpan(span, error);
    };
    return { ...options, traceparent: traceparentOf(span), onEnded };
  }

  /** Requests that have not ended. */
  get open(): number {
    return this.#open.size;
  }

  #cancel(key: string): void {
    if (!this.#open.has(key)) return;
    this.#cancellations.push(key);
    this.#turn.ask();
  }

  #received(event: RequestEvent): void {
    if (event.welcome) {
      this.#welcomed = true;
      this.#unsent = [...this.#open.values()];
      this.#cancellations = this.#unsent.filter(({ cancelled }) => cancelled).map(({ key }) => key);
      this.#turn.ask();
    }
    for (const key of event.accepted ?? []) this.#open.get(key)?.onAccepted();
    for (const { key = '', failure, retryAfterS } of event.refused ?? []) {
      this.#refused(key, errorOf(failure ?? {}), retryAfterS ?? 0);
    }
    for (const { key = '', stages, prefillEngine, decodeEngine } of event.progress ?? []) {
      this.#open.get(key)?.onProgress({
        stages: stagesOf(stages),
        ...(prefillEngine !== undefined && decodeEngine !== undefined ? { prefillEngine, decodeEngine } : {}),
      });
    }
    for (const { key = '', first = 0, tokens = [] } of event.tokens ?? []) {
      this.#open.get(key)?.onTokens(first, Uint32Array.from(tokens));
    }
    for (const { key = '', failure, attempts = 0, tokens = 0, decodeEngine = '' } of event.ended ?? []) {
      this.#acknowledgements.push(key);
      this.#turn.ask();
      const submitted = this.#open.get(key);
      if (!submitted) continue;
      if (!failure && submitted.received < tokens) {
        // Cannot be on a stream in order; submitted again, the rest comes with the outcome.
        throw new DualPathError(
          'INTERNAL',
          `${tokens - submitted.received} tokens of request '${key}' are missing`,
        );
      }
      this.#open.delete(key);
      submitted.onEnded(failure && errorOf(failure), { attempts, tokens, decodeEngine });
    }
  }

  #refused(key: string, error: DualPathError, retryAfterS: number): void {
    const submitted = this.#open.get(key);
    if (!submitted) return;
    if (submitted.wasAccepted && error.code === 'CAPACITY_EXHAUSTED') {
      // It was accepted by a scheduler that has since been replaced: it stays, and is submitted again.
      setTimeout(() => {
        if (this.#open.get(key) !== submitted) return;
        this.#unsent.push(submitted);
        this.#turn.ask();
      }, retryAfterS * 1000).unref();
      return;
    }
    this.#open.delete(key);
    const details = { ...error.details, retry_after_s: retryAfterS };
    submitted.onEnded(new DualPathError(error.code, error.message, details));
  }

  #flush(): void {
    if (!this.#welcomed) return;
    while (this.#unsent.length > 0 && !this.#connection.congested) {
      const batch = this.#unsent.slice(0, maxBatch);
      this.#unsent = this.#unsent.length > maxBatch ? this.#unsent.slice(maxBatch) : [];
      const submissions = batch.filter(({ key }) => this.#open.has(key)).map((one) => this.#message(one));
      this.#connection.send({ submissions });
    }
    if (this.#cancellations.length > 0 || this.#acknowledgements.length > 0) {
      const [cancellations, acknowledgements] = [this.#cancellations, this.#acknowledgements];
      this.#cancellations = [];
      this.#acknowledgements = [];
      this.#connection.send({ cancellations, acknowledgements });
    }
    if (this.#unsent.length > 0) setTimeout(() => this.#turn.ask(), 1).unref();
  }

  #message({ key, options, leftS, receivedTokens }: Submitted): SubmissionMessage {
    const { promptTokens, hitTokens, maxNewTokens, tenant, priority, payload, traceparent, progress } =
      options;
    return {
      ...{ key, model: options.model ?? this.#options.model, promptTokens, hitTokens, maxNewTokens },
      ...(tenant === undefined ? {} : { tenant }),
      ...(priority === undefined ? {} : { priority }),
      ...(payload === undefined ? {} : { payload }),
      ...(traceparent === undefined ? {} : { traceparent }),
      ...(progress === true ? { progress } : {}),
      ...(leftS === undefined ? {} : { deadlineS: leftS }),
      ...(receivedTokens.length === 0 ? {} : { receivedTokens }),
    };
  }

  #end(error: DualPathError): void {
    this.#ended ??= error;
    const all = [...this.#open.values()];
    this.#open.clear();
    for (const submitted of all) submitted.onEnded(error);
  }

  /** What has not ended here ends with CLOSED; the scheduler cancels it when the client does not come back. Idempotent. */
  async close(): Promise<void> {
    this.#flush();
    this.#end(new DualPathError('CLOSED', 'the client has been closed'));
    await this.#connection.close();
  }
}
