import type { EnginePresence } from '../leases/index.js';

export type GroupEngine = Omit<EnginePresence, 'incarnation' | 'addresses'> & Partial<EnginePresence>;

/** The engines of a group that have not been lost, each with a number that grows with every start. */
export class LivingEngines {
  readonly #engines: readonly GroupEngine[];
  readonly #incarnations = new Map<string, number>();
  #newest = 0;

  constructor(engines: readonly GroupEngine[]) {
    this.#engines = engines;
    for (const { capacity, incarnation } of engines) {
      this.#incarnations.set(capacity.engine, Math.max(incarnation ?? 0, this.#next()));
    }
  }

  get size(): number {
    return this.#incarnations.size;
  }

  has(engine: string): boolean {
    return this.#incarnations.has(engine);
  }

  /** False if it was not there. */
  lost(engine: string): boolean {
    return this.#incarnations.delete(engine);
  }

  /** False if it is none of the group. */
  started(engine: string): boolean {
    const known = this.#engines.some(({ capacity }) => capacity.engine === engine);
    if (known) this.#incarnations.set(engine, this.#next());
    return known;
  }

  /** As if all had been started anew. */
  renew(): void {
    for (const name of this.#incarnations.keys()) this.#incarnations.set(name, this.#next());
  }

  presences(): EnginePresence[] {
    return this.#engines.flatMap(({ capacity, addresses = {} }) => {
      const incarnation = this.#incarnations.get(capacity.engine);
      return incarnation === undefined ? [] : [{ capacity, addresses, incarnation }];
    });
  }

  #next(): number {
    return (this.#newest = Math.max(this.#newest + 1, Date.now()));
  }
}
