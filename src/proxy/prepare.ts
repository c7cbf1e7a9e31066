import {
  canonicalPrompt,
  parseBody,
  PromptKeys,
  type Api,
  type CanonicalPrompt,
  type KeyedPrompt,
  type PromptKeyOptions,
} from '../openai/index.js';

export interface PrepareOptions extends PromptKeyOptions {
  readonly volatileLines: readonly RegExp[];
}

export interface Prepared {
  readonly prompt: Omit<CanonicalPrompt, 'content'>;
  readonly keyed: KeyedPrompt;
}

/** From a body to what routing needs. The same code on the main thread and in workers. */
export class Preparer {
  readonly #keys: PromptKeys;
  readonly #volatileLines: readonly RegExp[];

  constructor(options: PrepareOptions) {
    this.#keys = new PromptKeys(options);
    this.#volatileLines = options.volatileLines;
  }

  /** @throws ApiError 400 */
  prepare(api: Api, body: Buffer, tenant: string): Prepared {
    const { content, ...prompt } = canonicalPrompt(api, parseBody(body), this.#volatileLines);
    return { prompt, keyed: this.#keys.keysOf({ ...prompt, content }, tenant) };
  }
}
