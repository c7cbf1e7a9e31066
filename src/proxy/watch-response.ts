import { SseLines } from '../openai/index.js';

/** What a response says about itself, read beside its way to the client and never changed. */
export interface ResponseFacts {
  /** Prompt tokens that the replica had cached, where it reports that. */
  cachedTokens: number | null;
  promptTokens: number | null;
  /** An error within a response of status 200. */
  failed: boolean;
  responseId: string | null;
}

const jsonBytesMax = 1 << 20;
const errorMember = Buffer.from('"error"');
const errorEvent = Buffer.from('event: error');
const usageMember = Buffer.from('"usage"');
const responseMember = Buffer.from('"response"');

/** Reads usage, errors and the response's id from an event stream or a JSON body as they pass. */
export class ResponseWatch {
  readonly facts: ResponseFacts = { cachedTokens: null, promptTokens: null, failed: false, responseId: null };
  readonly #kind: 'events' | 'json' | 'other';
  readonly #wantsId: boolean;
  readonly #lines = new SseLines();
  #json: Buffer[] | null = [];
  #jsonBytes = 0;

  constructor(contentType: string, wantsId: boolean) {
    this.#wantsId = wantsId;
    this.#kind = contentType.startsWith('text/event-stream')
      ? 'events'
      : contentType.startsWith('application/json')
        ? 'json'
        : 'other';
  }

  data(chunk: Buffer): void {
    if (this.#kind === 'events') this.#events(chunk);
    else if (this.#kind === 'json' && this.#json !== null) {
      this.#jsonBytes += chunk.length;
      if (this.#jsonBytes > jsonBytesMax) this.#json = null;
      else this.#json.push(chunk);
    }
  }

  end(): ResponseFacts {
    if (this.#kind === 'json' && this.#json !== null) {
      const body = this.#json.length === 1 ? this.#json[0]! : Buffer.concat(this.#json);
      if (this.#wantsId || body.includes(usageMember) || body.includes(errorMember)) {
        this.#read(body.toString('utf8'));
      }
    }
    return this.facts;
  }

  #events(chunk: Buffer): void {
    // Within text these words stand escaped, so that most chunks need no second look.
    const isPlain =
      !this.#lines.within &&
      chunk[chunk.length - 1] === 10 &&
      !chunk.includes(usageMember) &&
      !chunk.includes(errorMember) &&
      !(this.#wantsId && this.facts.responseId === null && chunk.includes(responseMember));
    if (chunk.includes(errorEvent)) this.facts.failed = true;
    if (!isPlain) this.#lines.feed(chunk, (text) => this.#line(text));
  }

  #line(text: string): void {
    const isWanted =
      text.includes('"usage"') || text.includes('"error"') || (this.#wantsId && text.includes('"id"'));
    if (isWanted) this.#read(text);
  }

  #read(text: string): void {
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch {
      return;
    }
    const message = objectOf(value);
    if (message === null) return;
    // Responses wrap the whole in "response", Anthropic's first event in "message".
    const inner = objectOf(message['response']) ?? objectOf(message['message']) ?? message;
    if (isError(message) || isError(inner) || message['type'] === 'error') this.facts.failed = true;
    if (this.#wantsId && typeof inner['id'] === 'string') this.facts.responseId ??= inner['id'];
    this.#usage(objectOf(inner['usage']) ?? objectOf(message['usage']));
  }

  #usage(usage: Record<string, unknown> | null): void {
    if (usage === null) return;
    const details = objectOf(usage['prompt_tokens_details']) ?? objectOf(usage['input_tokens_details']);
    this.facts.cachedTokens =
      numberOf(details?.['cached_tokens']) ??
      numberOf(usage['cache_read_input_tokens']) ??
      this.facts.cachedTokens;
    this.facts.promptTokens =
      numberOf(usage['prompt_tokens']) ?? numberOf(usage['input_tokens']) ?? this.facts.promptTokens;
  }
}

function isError(message: Record<string, unknown>): boolean {
  return message['error'] !== undefined && message['error'] !== null;
}

function objectOf(value: unknown): Record<string, unknown> | null {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : null;
}

function numberOf(value: unknown): number | null {
  return typeof value === 'number' && Number.isFinite(value) ? value : null;
}
