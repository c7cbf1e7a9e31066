import { DualPathError } from '../errors/index.js';
import type { Assignment } from '../scheduler/index.js';

/** Assignments that have come, and the one fetch that may wait for some. */
export class AssignmentQueue {
  readonly #group: string;
  #assignments: Assignment[] = [];
  #waiter: { resolve(assignments: Assignment[]): void; reject(error: DualPathError): void } | undefined;

  constructor(group: string) {
    this.#group = group;
  }

  get length(): number {
    return this.#assignments.length;
  }

  get awaited(): boolean {
    return this.#waiter !== undefined;
  }

  /** @throws CAPACITY_EXHAUSTED while another one waits, CANCELLED */
  check(signal: AbortSignal | undefined): void {
    if (signal?.aborted) throw cancelledFetch(this.#group);
    if (!this.#waiter) return;
    throw new DualPathError(
      'CAPACITY_EXHAUSTED',
      `group ${this.#group} already has a fetch outstanding, the limit is 1: wait for it or abort it first`,
      { group: this.#group, limit: 1 },
    );
  }

  /** All that there are, at least one. @throws CANCELLED, what `end` is given */
  async take(signal: AbortSignal | undefined): Promise<Assignment[]> {
    if (this.#assignments.length > 0) return this.#assignments.splice(0);
    return await new Promise((resolve, reject) => {
      const settled =
        <T>(then: (value: T) => void): ((value: T) => void) =>
        (value) => {
          this.#waiter = undefined;
          signal?.removeEventListener('abort', onAbort);
          then(value);
        };
      const onAbort = (): void => this.#waiter?.reject(cancelledFetch(this.#group));
      signal?.addEventListener('abort', onAbort);
      this.#waiter = { resolve: settled(resolve), reject: settled(reject) };
    });
  }

  push(assignments: readonly Assignment[]): void {
    this.#assignments.push(...assignments);
    if (this.#assignments.length > 0) this.#waiter?.resolve(this.#assignments.splice(0));
  }

  /** False if it has been taken. */
  withdraw(admission: number): boolean {
    const at = this.#assignments.findIndex((assignment) => assignment.admission === admission);
    if (at >= 0) this.#assignments.splice(at, 1);
    return at >= 0;
  }

  clear(): void {
    this.#assignments = [];
  }

  end(error: DualPathError): void {
    this.#waiter?.reject(error);
  }
}

function cancelledFetch(group: string): DualPathError {
  return new DualPathError('CANCELLED', `the fetch of group ${group} was aborted by its caller`, { group });
}
