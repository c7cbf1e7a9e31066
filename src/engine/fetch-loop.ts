/** Asks the scheduler for work, again and again, with the engine's load (paper: engines fetch regularly). */
import { isDualPathError } from '../errors/index.js';
import type { Assignment } from '../scheduler/index.js';
import type { EngineOptions } from './options.js';

export interface FetchHooks {
  load(): { readonly unfinishedRequests: number; readonly unfinishedTokens: number };
  accept(assignment: Assignment): void;
  /** The scheduler refused to give work for a reason that is not its or this engine's end. */
  failed(error: unknown): void;
}

/** Errors that end the loop and say nothing new: stopped, the scheduler closed, this engine declared lost. */
const over = ['CANCELLED', 'CLOSED', 'PEER_LOST'] as const;

export class FetchLoop {
  readonly #stop = new AbortController();
  readonly #ended: Promise<void>;

  constructor(options: EngineOptions, hooks: FetchHooks) {
    this.#ended = this.#run(options, hooks).catch((error: unknown) => {
      if (!over.some((code) => isDualPathError(error, code))) hooks.failed(error);
    });
  }

  async #run({ scheduler, group, traffic }: EngineOptions, hooks: FetchHooks): Promise<void> {
    for (let sequence = 1; !this.#stop.signal.aborted; sequence++) {
      const report = { engine: traffic.name, sequence, nodeReadQueueBlocks: 0, ...hooks.load() };
      const assignments = await scheduler.fetch(group, [report], this.#stop.signal);
      for (const assignment of assignments) hooks.accept(assignment);
    }
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#ended;
  }
}
