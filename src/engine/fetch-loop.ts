/** Asks the scheduler for work, again and again, with the engine's load (paper: engines fetch regularly). */
import { DualPathError, isDualPathError } from '../errors/index.js';
import type { Assignment } from '../scheduler/index.js';
import type { EngineOptions } from './options.js';

export class FetchLoop {
  readonly #stop = new AbortController();
  readonly #ended: Promise<void>;
  #sequence = 0;

  constructor(
    { scheduler, group, traffic }: EngineOptions,
    load: () => { unfinishedRequests: number; unfinishedTokens: number },
    accept: (assignment: Assignment) => void,
  ) {
    this.#ended = (async () => {
      while (!this.#stop.signal.aborted) {
        try {
          const report = {
            engine: traffic.name,
            sequence: ++this.#sequence,
            nodeReadQueueBlocks: 0,
            ...load(),
          };
          const assignments = await scheduler.fetch(group, [report], this.#stop.signal);
          for (const assignment of assignments) accept(assignment);
        } catch (error) {
          const over = ['CANCELLED', 'CLOSED', 'PEER_LOST'] as const;
          if (over.some((code) => isDualPathError(error, code))) return;
          throw error;
        }
      }
    })();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#ended;
  }
}

/** Whatever was thrown, as an error with a code. */
export function asError(error: unknown): DualPathError {
  if (error instanceof DualPathError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new DualPathError('INTERNAL', message, {}, { cause: error });
}
