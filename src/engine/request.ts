/** What requests have in common on either engine. */
import { requestKey } from '../control/index.js';
import { DualPathError, isDualPathError } from '../errors/index.js';
import type { BlockLayout } from '../layout/index.js';
import type { Assignment } from '../scheduler/index.js';
import { Interruption } from '../traffic/index.js';
import { ProgramError } from '../transfer/index.js';
import { Deferred } from './deferred.js';
import type { PromptSource } from './options.js';

export abstract class EngineRequest {
  readonly assignment: Assignment;
  readonly key: string;
  tokens: Uint32Array = new Uint32Array();
  readonly #end = new AbortController();
  readonly #ended = new Deferred<never>();
  #limits: Interruption | undefined;

  constructor(assignment: Assignment) {
    this.assignment = assignment;
    this.key = requestKey(assignment);
  }

  get name(): string {
    return this.assignment.request;
  }

  /** Why the request ends early, once it does. */
  get error(): DualPathError | undefined {
    return this.#end.signal.reason as DualPathError | undefined;
  }

  /** Aborted when the request ends early. */
  get signal(): AbortSignal {
    return this.#end.signal;
  }

  /** The request is to end with `error`: what it waits for is given up. Only the first error counts. */
  end(error: DualPathError): void {
    if (this.signal.aborted) return;
    this.#end.abort(error);
    this.#ended.reject(error);
    this.onEnd(error);
  }

  /** Calls `cancel` when the user's signal or deadline says so, until unlimit(). @throws INVALID_ARGUMENT */
  limit(prompts: PromptSource, cancel: (error: DualPathError) => void): void {
    const options = prompts.limits?.(this.name);
    if (options === undefined) return;
    const limits = new Interruption(options);
    this.#limits = limits;
    const stop = (): void => {
      cancel(
        limits.explain(new DualPathError('CANCELLED', `request '${this.name}' was cancelled by its user`)),
      );
    };
    if (limits.stopped) stop();
    else limits.signal?.addEventListener('abort', stop, { once: true, signal: this.signal });
  }

  unlimit(): void {
    this.#limits?.end();
  }

  protected abstract onEnd(error: DualPathError): void;

  protected throwIfEnding(): void {
    if (this.error !== undefined) throw this.error;
  }

  /** @throws INVALID_ARGUMENT when it is not the prompt that the scheduler was told of */
  protected async fetchPrompt(prompts: PromptSource, layout: BlockLayout): Promise<void> {
    this.throwIfEnding();
    this.tokens = await Promise.race([prompts.prompt(this.name), this.#ended.promise]);
    const { promptBlocks } = this.assignment;
    if (layout.blocksFor(this.tokens.length) === promptBlocks) return;
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `request '${this.name}': a prompt of ${this.tokens.length} tokens does not take the ${promptBlocks} blocks ` +
        'reserved for it; give the engines the prompt that was submitted to the scheduler',
      { prompt_tokens: this.tokens.length, blocks: promptBlocks, block_tokens: layout.blockTokens },
    );
  }
}

/**
 * Blocks of a read that arrived, of `blocks`: fewer where one was bad or could not be read. The rest is
 * computed, nothing wrong is ever served.
 */
export async function blocksRead(done: Promise<unknown>, blocks: number): Promise<number> {
  try {
    await done;
    return blocks;
  } catch (error) {
    const lost = isDualPathError(error, 'BAD_BLOCK') || isDualPathError(error, 'STORAGE_IO');
    if (lost && error instanceof ProgramError && error.failedBlock !== undefined) return error.failedBlock;
    throw error;
  }
}

/** Whatever was thrown, as an error with a code. */
export function asError(error: unknown): DualPathError {
  if (error instanceof DualPathError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new DualPathError('INTERNAL', message, {}, { cause: error });
}
