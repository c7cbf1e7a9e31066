import type { RunResult } from '../run.js';
import type { AnyTask, Capacity } from '../sweep.js';

/** A run that rows are made of; the same run may serve several. */
export type Task = AnyTask & { readonly id: string };

/** What the runs came to. */
export class Results {
  readonly #byId = new Map<string, RunResult | Capacity>();

  set(id: string, result: RunResult | Capacity): void {
    this.#byId.set(id, result);
  }

  run(id: string): RunResult | undefined {
    return this.#byId.get(id) as RunResult | undefined;
  }

  capacity(id: string): Capacity | undefined {
    return this.#byId.get(id) as Capacity | undefined;
  }

  /** Mean over those of `ids` that there are; undefined unless all are. */
  mean(ids: readonly string[], value: (id: string) => number | undefined): number | undefined {
    const values = ids.map(value);
    if (values.some((each) => each === undefined)) return undefined;
    return values.reduce<number>((sum, each) => sum + each!, 0) / values.length;
  }
}
