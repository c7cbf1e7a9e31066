import { DualPathError } from '../errors/index.js';
import type { LeaseContext } from './context.js';
import { EngineTable, type EngineRecord, type GroupRecord } from './engine-table.js';
import type { RequestRecord } from './request-record.js';
import type { RequestTable } from './request-table.js';
import type { EngineChange } from './types.js';

/** Which engines hold which requests, and how leases end. */
export class LeaseBook {
  readonly table = new EngineTable();
  /** By admission: leases that some engine has not let go. */
  readonly leases = new Map<number, RequestRecord>();
  readonly #context: LeaseContext;
  readonly #requests: RequestTable;

  constructor(context: LeaseContext, requests: RequestTable) {
    this.#context = context;
    this.#requests = requests;
  }

  /** The lease is taken back: who still holds it is told, and when nobody does the request goes on. */
  takeBack(record: RequestRecord, error: DualPathError): void {
    const { counts, sink } = this.#context;
    const assignment = record.assignment!;
    const { admission } = assignment;
    if (record.admitted) this.#context.admission.end(record.name, error, admission);
    record.admitted = false;
    record.state = 'returning';
    record.error = error;
    counts.returned++;
    this.#context.emit({ kind: 'returned', request: record.name, admission, attempt: record.tries, error });
    if (assignment.side !== 'split')
      record.description = { ...record.description, avoidSide: assignment.side };
    for (const engine of record.holders) sink.revoke(engine.group.name, admission, error);
    if (record.holders.length === 0) this.#goOn(record);
  }

  /** Nobody holds it any more. */
  #goOn(record: RequestRecord): void {
    this.leases.delete(record.assignment!.admission);
    if (record.state === 'ended') {
      this.#requests.released(record);
      return;
    }
    if (record.state !== 'returning') return;
    record.assignment = undefined;
    record.done.clear();
    if (record.orphan) {
      this.#requests.forgetOrphan(record);
    } else if (record.tries < this.#context.options.maxTries) {
      this.#requests.park(record);
    } else {
      const message = `request ${record.name} was given to engines ${record.tries} times, the last time: ${record.error!.message}`;
      this.#requests.end(record, new DualPathError(record.error!.code, message, { request: record.name }));
    }
  }

  release(record: RequestRecord, engine: EngineRecord): void {
    const at = record.holders.indexOf(engine);
    if (at < 0) return;
    record.holders.splice(at, 1);
    engine.leases.delete(record);
    if (record.holders.length === 0 && record.state !== 'leased') this.#goOn(record);
    if (engine.group.draining) this.drained(engine.group);
  }

  /** An engine has none of it any more, without having said why. */
  letGo(record: RequestRecord, engine: EngineRecord, error: DualPathError): void {
    this.release(record, engine);
    if (record.state === 'leased') this.takeBack(record, error);
  }

  /** A request is over, and engines may have it still. */
  stop(record: RequestRecord, error: DualPathError | undefined): void {
    for (const engine of [...record.holders]) {
      if (error) this.#context.sink.revoke(engine.group.name, record.assignment!.admission, error);
      else this.release(record, engine);
    }
  }

  loseAll(group: GroupRecord, change: EngineChange, why: string): void {
    for (const engine of [...group.engines.values()]) this.lose(engine, change, why);
  }

  lose(engine: EngineRecord, change: EngineChange, why: string): void {
    this.table.remove(engine);
    const error = new DualPathError('PEER_LOST', `engine ${engine.name} ${why}`, { engine: engine.name });
    for (const record of [...engine.leases]) this.letGo(record, engine, error);
    this.#requests.waitingLost(this.#context.admission.engineLost(engine.name));
    this.#context.emit({ kind: 'engine', engine: engine.name, change });
  }

  setOpen(group: GroupRecord, open: boolean): void {
    const opens = open && group.connected && !group.draining;
    if (group.open === opens) return;
    group.open = opens;
    for (const engine of group.engines.keys()) {
      this.#context.admission.setOpen(engine, opens);
      this.#context.emit({ kind: 'engine', engine, change: opens ? 'open' : 'closed' });
    }
  }

  drained(group: GroupRecord): void {
    for (const engine of group.engines.values()) if (engine.leases.size > 0) return;
    this.#context.sink.drained(group.name);
  }

  /** The lease that an engine speaks of, if it has one on it; else the word is dropped. */
  leaseOf(
    group: string,
    admission: number,
    what: 'stage' | 'result' | 'tokens' | 'failure',
  ): RequestRecord | undefined {
    const record = this.leases.get(admission);
    const holds = record?.holders.some((engine) => engine.group.name === group);
    if (record && holds) {
      if (record.state !== 'leased' && what !== 'failure') this.#context.drop(what, admission);
      return record;
    }
    this.#context.drop(what, admission);
    return undefined;
  }

  held(engine: EngineRecord, admission: number): RequestRecord | undefined {
    const record = this.leases.get(admission);
    return record?.holders.includes(engine) ? record : undefined;
  }
}

export function hold(record: RequestRecord, engine: EngineRecord): void {
  if (record.holders.includes(engine)) return;
  record.holders.push(engine);
  engine.leases.add(record);
}
