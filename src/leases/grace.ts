import { DualPathError, isDualPathError } from '../errors/index.js';
import type { Stage } from '../scheduler/index.js';
import type { LeaseContext } from './context.js';
import type { EngineRecord } from './engine-table.js';
import { hold, type LeaseBook } from './lease-book.js';
import type { RequestRecord } from './request-record.js';
import type { RequestTable } from './request-table.js';
import type { HeldLease } from './types.js';

/** After the start: leases of the scheduler before this one, as its engines tell of them. */
export class Grace {
  readonly #context: LeaseContext;
  readonly #requests: RequestTable;
  readonly #book: LeaseBook;

  constructor(context: LeaseContext, requests: RequestTable, book: LeaseBook) {
    this.#context = context;
    this.#requests = requests;
    this.#book = book;
  }

  /** In the grace period: a lease of the scheduler before this one. */
  claim(engine: EngineRecord, lease: HeldLease): RequestRecord | undefined {
    const { grace } = this.#context;
    const { assignment, promptTokens, hitTokens, maxNewTokens, attempt } = lease;
    const { request, admission, prefillEngine, decodeEngine } = assignment;
    if (!grace || (engine.name !== prefillEngine && engine.name !== decodeEngine)) return undefined;
    const slash = request.indexOf('/');
    if (slash < 0) return undefined;
    let record = this.#requests.get(request);
    if (record && record.state !== 'parked' && record.assignment?.admission !== admission) return undefined;
    if (!record) {
      const [client, key] = [request.slice(0, slash), request.slice(slash + 1)];
      const { model } = this.#context.options;
      record = this.#requests.adopt(client, key, { key, model, promptTokens, hitTokens, maxNewTokens });
    }
    if (record.state === 'parked') {
      this.#requests.unpark(record);
      record.state = 'leased';
      record.assignment = assignment;
      record.assignedS = this.#context.nowS;
      record.tries = attempt;
      this.#book.leases.set(admission, record);
    }
    if (record.state !== 'leased') return undefined;
    if (engine.name === decodeEngine) for (const stage of impliedBy(lease.done)) record.done.add(stage);
    record.prefilled ||= record.done.has('prefill');
    hold(record, engine);
    return record;
  }

  /** What both engines have reported goes on, the rest goes back. */
  end(): void {
    this.#context.grace = false;
    for (const record of [...this.#book.leases.values()]) {
      if (record.state !== 'leased' || record.admitted) continue;
      const assignment = record.assignment!;
      const names = record.holders.map(({ name }) => name);
      const wanted = [...(record.prefilled ? [] : [assignment.prefillEngine]), assignment.decodeEngine];
      const missing = wanted.find((name) => !names.includes(name));
      if (missing === undefined && this.#adopt(record)) continue;
      const why = missing === undefined ? 'has no room for it' : `has not come back with it: ${missing}`;
      this.#book.takeBack(
        record,
        new DualPathError('PEER_LOST', `one engine of request ${record.name} ${why}`),
      );
    }
    this.#context.emit({ kind: 'grace', over: true });
    this.#requests.changed();
  }

  #adopt(record: RequestRecord): boolean {
    const assignment = record.assignment!;
    try {
      if (!this.#context.admission.adopt(record.description, assignment, [...record.done])) return false;
    } catch (error) {
      if (isDualPathError(error)) return false; // its engines say what cannot be
      throw error;
    }
    record.admitted = true;
    this.#context.counts.adopted++;
    this.#context.emit({ kind: 'adopted', request: record.name, assignment });
    return true;
  }
}

/** A decode engine that is past a stage knows that those before it are done. */
function impliedBy(done: readonly Stage[]): readonly Stage[] {
  if (!done.includes('decode-buffer')) return done;
  return [...new Set<Stage>([...done, 'prefill-read', 'decode-read', 'prefill'])];
}
