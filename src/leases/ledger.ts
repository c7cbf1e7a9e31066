import { DualPathError } from '../errors/index.js';
import { Admission, type EngineLoad, type Stage } from '../scheduler/index.js';
import { LeaseContext } from './context.js';
import type { EngineRecord, EngineTable, GroupRecord } from './engine-table.js';
import { Grace } from './grace.js';
import { hold, LeaseBook } from './lease-book.js';
import { checkLeaseOptions, leaseMargin, type CheckedOptions } from './options.js';
import type { RequestRecord } from './request-record.js';
import { RequestTable } from './request-table.js';
import type {
  GroupHello,
  HeldLease,
  LeaseOptions,
  LeaseSink,
  LeaseStatistics,
  LeaseSubmission,
} from './types.js';

/** Numbers of assignments of one epoch: more than can be given out in a second. */
const admissionsPerEpoch = 2 ** 21;
/** Errors of an engine for which the request is not to blame. */
const anotherTry = ['PEER_LOST', 'RDMA_FAILED', 'CLOSED'] as const;

/**
 * Which request is leased to which engines, as a state machine around `Admission`: events go in, what engines and
 * clients must be told comes out through a `LeaseSink`. No clock, no I/O: `at` says what time it is, `schedule`
 * assigns. A request may run more than once and has one outcome: it is leased anew only after every engine of the
 * lease before has let it go, has been replaced, or has not been heard for longer than a lease.
 *
 * After a start nothing is assigned for the grace period: engines say what they have (`hello`), clients submit again
 * what has not ended.
 */
export class LeaseLedger {
  readonly admission: Admission;
  readonly #context: LeaseContext;
  readonly #table: EngineTable;
  readonly #book: LeaseBook;
  readonly #grace: Grace;
  readonly #requests: RequestTable;

  /** @throws INVALID_ARGUMENT */
  constructor(options: LeaseOptions, sink: LeaseSink) {
    const { lease, admission } = checkLeaseOptions(options);
    this.admission = new Admission({
      ...admission,
      engines: [],
      admissionBase: Math.floor((lease.epoch + lease.epochShare) * admissionsPerEpoch),
      // Never met: the ledger has its own limit, and what comes back from engines is not refused.
      maxWaiting: 2 ** 31,
    });
    this.#context = new LeaseContext(lease, this.admission, sink);
    this.#requests = new RequestTable(this.#context, (record, error) => this.#book.stop(record, error));
    this.#book = new LeaseBook(this.#context, this.#requests);
    this.#table = this.#book.table;
    this.#grace = new Grace(this.#context, this.#requests, this.#book);
  }

  get options(): CheckedOptions {
    return this.#context.options;
  }

  get nowS(): number {
    return this.#context.nowS;
  }

  statistics(): LeaseStatistics {
    const { counts, dropped, options, grace, clock } = this.#context;
    const leases = [...this.#book.leases.values()];
    const count = (state: string): number => leases.filter((record) => record.state === state).length;
    return {
      ...counts,
      ...this.#requests.sizes,
      dropped: { ...dropped },
      epoch: options.epoch,
      grace,
      leased: count('leased'),
      returning: count('returning'),
      engines: this.#table.engines.size,
      groups: this.#table.groups.size,
      clockLeaps: clock.leaps,
    };
  }

  /** Engines that are here, for those who look for each other. */
  engine(name: string): EngineRecord | undefined {
    return this.#table.engines.get(name);
  }

  engines(): IterableIterator<EngineRecord> {
    return this.#table.engines.values();
  }

  /** Requests that have not been forgotten. */
  requests(): IterableIterator<RequestRecord> {
    return this.#requests.all();
  }

  /** Time, on a monotonic clock, in seconds: before the events of a turn. */
  at(callerS: number): void {
    const { clock, options } = this.#context;
    const leapS = clock.advance(callerS);
    if (leapS !== 0) this.#context.emit({ kind: 'clock', leapS });
    const { nowS } = clock;
    for (const group of [...this.#table.groups.values()]) {
      if (nowS - group.heardS <= options.leaseS * (1 + leaseMargin)) continue;
      this.#context.counts.expiredEngines += group.engines.size;
      this.#book.loseAll(group, 'expired', `has not been heard for ${options.leaseS} s`);
    }
    if (this.#context.grace && nowS >= options.graceS) this.#grace.end();
    this.#requests.sweep();
  }

  /** Assigns all that can be: after the events of a turn. */
  schedule(): void {
    if (this.#context.grace) return;
    this.#requests.enqueueParked();
    const { counts, nowS, sink } = this.#context;
    for (const assignment of this.admission.admit()) {
      const record = this.#requests.get(assignment.request)!;
      record.state = 'leased';
      record.admitted = true;
      record.assignedS = nowS;
      record.assignment = assignment;
      record.prefilled = false;
      record.tries++;
      counts.assigned++;
      this.#book.leases.set(assignment.admission, record);
      for (const name of [assignment.prefillEngine, assignment.decodeEngine]) {
        const engine = this.#table.engines.get(name)!;
        hold(record, engine);
        sink.assign(engine.group.name, record.grant);
        if (--engine.group.credits === 0) this.#book.setOpen(engine.group, false);
      }
      if (record.attached && record.wantsProgress) sink.progress(record.client, record.key, assignment);
      const [attempt, waitedS] = [record.tries, nowS - record.arrivedS];
      const { name: request, traceparent } = record;
      this.#context.emit({ kind: 'assigned', request, assignment, attempt, waitedS, traceparent });
    }
  }

  // Engines.

  /**
   * A leader says which engines it speaks for and all they hold: at first, after a lost connection, after a restart of
   * either side. What is leased to them and not named goes back.
   *
   * @throws INVALID_ARGUMENT, CAPACITY_EXHAUSTED; a hello that is refused changes nothing but for engines that it replaces
   */
  hello(hello: GroupHello): void {
    const { options, nowS } = this.#context;
    if (hello.model !== options.model) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `group '${hello.group}' has model '${hello.model}'; this scheduler serves '${options.model}'`,
        { model: hello.model, serves: options.model },
      );
    }
    this.#table.check(hello);
    const named = new Map(hello.engines.map((presence) => [presence.capacity.engine, presence]));
    const before = this.#table.groups.get(hello.group);
    for (const engine of before ? [...before.engines.values()] : []) {
      if (!named.has(engine.name)) this.#book.lose(engine, 'left', 'is not named by its leader any more');
    }
    for (const [name, { incarnation }] of named) {
      const known = this.#table.engines.get(name);
      if (!known) continue;
      if (known.presence.incarnation === incarnation && known.group === before) continue;
      this.#book.lose(known, 'superseded', 'was started anew');
    }
    const fresh = hello.engines.filter(({ capacity }) => !this.#table.engines.has(capacity.engine));
    this.admission.join(fresh.map(({ capacity }) => capacity));
    const group = this.#table.connect(hello.group, nowS);
    for (const presence of fresh) {
      this.#table.add(group, presence);
      this.admission.setOpen(presence.capacity.engine, false);
      this.#context.emit({ kind: 'engine', engine: presence.capacity.engine, change: 'joined' });
    }
    this.#book.setOpen(group, false);
    this.#requests.changed();
    this.#synchronise(group, hello.held);
  }

  /** Anything from its leader renews the leases of a group. False: it must say hello. */
  heard(name: string): boolean {
    const group = this.#table.groups.get(name);
    if (!group?.connected) return false;
    group.heardS = this.#context.nowS;
    return true;
  }

  /**
   * The group takes so many further assignments.
   *
   * @throws INVALID_ARGUMENT for impossible loads, which are counted and not used
   */
  fetch(name: string, loads: readonly EngineLoad[], credits: number): void {
    const group = this.#table.group(name);
    group.credits = Number.isSafeInteger(credits) && credits > 0 ? credits : 0;
    this.#book.setOpen(group, group.credits > 0);
    for (const load of loads) {
      try {
        if (!group.engines.has(load.engine)) {
          throw new DualPathError(
            'INVALID_ARGUMENT',
            `engine '${load.engine}' is not of group '${name}': report only its own`,
          );
        }
        this.admission.report([load]);
      } catch (error) {
        this.#context.counts.badReports++;
        throw error;
      }
    }
  }

  /**
   * @param tokens with 'request': all that it has generated; if some have not arrived they are asked for, and the engine
   * says it again
   */
  stage(name: string, admission: number, stage: Stage, tokens = 0): void {
    const record = this.#book.leaseOf(name, admission, stage === 'request' ? 'result' : 'stage');
    if (!record) return;
    if (record.state !== 'leased') {
      this.#through(record, stage); // too late to count, but the engine has nothing of it any more
      return;
    }
    if (stage === 'request' && tokens > record.log.count) {
      this.#context.sink.resend(name, admission, record.log.count);
      return;
    }
    this.#context.emit({ kind: 'stage', request: record.name, admission, stage });
    if (record.attached && record.wantsProgress)
      this.#context.sink.progress(record.client, record.key, stage);
    if (stage === 'request') {
      this.#requests.end(record, undefined);
      return;
    }
    if (record.admitted) this.admission.complete(record.name, stage, admission);
    else record.done.add(stage);
    if (stage === 'prefill') record.prefilled = true;
    this.#through(record, stage);
  }

  /** An engine lets go of a request with its last stage. */
  #through(record: RequestRecord, stage: Stage): void {
    const { prefillEngine, decodeEngine } = record.assignment!;
    const name = stage === 'prefill' ? prefillEngine : stage === 'request' ? decodeEngine : undefined;
    const engine = record.holders.find((holder) => holder.name === name);
    if (engine) this.#book.release(record, engine);
  }

  /** Tokens that a request has generated, from index `first` on. */
  tokens(name: string, admission: number, first: number, tokens: Uint32Array): void {
    const record = this.#book.leaseOf(name, admission, 'tokens');
    if (record?.state !== 'leased') return;
    const fresh = record.log.append(first, tokens);
    if (!fresh) {
      this.#context.sink.resend(name, admission, record.log.count);
      return;
    }
    if (fresh.length === 0) return;
    const at = record.log.count - fresh.length;
    this.#context.emit({ kind: 'tokens', request: record.name, admission, first: at, count: fresh.length });
    this.#requests.sendTokens(record);
  }

  /** An engine has given a request up, or has let it go as it was told. */
  failed(name: string, engineName: string, admission: number, error: DualPathError): void {
    const record = this.#book.leaseOf(name, admission, 'failure');
    const engine = record?.holders.find((holder) => holder.name === engineName);
    if (!record || !engine) return;
    this.#book.release(record, engine);
    if (record.state !== 'leased') return;
    if (anotherTry.some((code) => error.code === code)) this.#book.takeBack(record, error);
    else this.#requests.end(record, error);
  }

  /** A leader tells that one of its engines has died. */
  engineLost(name: string, engine: string): void {
    const record = this.#table.group(name).engines.get(engine);
    if (record) this.#book.lose(record, 'lost', 'was reported dead by its leader');
  }

  /** The leader's stream has ended; leases go on until they expire. */
  disconnected(name: string): void {
    const group = this.#table.groups.get(name);
    if (!group) return;
    group.connected = false;
    this.#book.setOpen(group, false);
  }

  /** No more requests for its engines; told once they have none left. */
  drain(name: string): void {
    const group = this.#table.group(name);
    group.draining = true;
    this.#book.setOpen(group, false);
    for (const engine of group.engines.keys())
      this.#context.emit({ kind: 'engine', engine, change: 'draining' });
    this.#book.drained(group);
  }

  /** Its engines end, with nothing in flight. */
  leave(name: string): void {
    const group = this.#table.groups.get(name);
    if (group) this.#book.loseAll(group, 'left', 'has left');
  }

  // Clients.

  /** @throws CAPACITY_EXHAUSTED */
  attach(client: string): void {
    this.#requests.attach(client);
  }

  detach(client: string): void {
    this.#requests.detach(client);
  }

  submit(client: string, submission: LeaseSubmission): void {
    this.#requests.submit(client, submission);
  }

  cancel(client: string, key: string): void {
    this.#requests.cancel(client, key);
  }

  acknowledge(client: string, key: string): void {
    this.#requests.acknowledge(client, key);
  }

  /** A stage in a hello: it may have been reported before. */
  #resumed(record: RequestRecord, engine: EngineRecord, admission: number, stage: Stage): void {
    if (record.holders.includes(engine)) this.stage(engine.group.name, admission, stage);
  }

  #synchronise(group: GroupRecord, held: readonly HeldLease[]): void {
    const { sink } = this.#context;
    const named = new Map<EngineRecord, Set<RequestRecord>>();
    for (const lease of held) {
      const engine = group.engines.get(lease.engine);
      const { admission } = lease.assignment;
      const record = engine && (this.#book.held(engine, admission) ?? this.#grace.claim(engine, lease));
      if (!record) {
        this.#context.drop('held', admission);
        const message = `the lease of request ${lease.assignment.request} has ended`;
        if (!lease.failure && !lease.done.includes('request')) {
          sink.revoke(group.name, admission, new DualPathError('CANCELLED', message));
        }
        continue;
      }
      const mine = named.get(engine) ?? new Set();
      named.set(engine, mine.add(record));
      for (const stage of lease.done) this.#resumed(record, engine, admission, stage);
      if (record.state !== 'leased' && !lease.failure && record.holders.includes(engine)) {
        sink.revoke(group.name, admission, record.error ?? cancelled(record));
      }
      if (lease.failure) this.failed(group.name, lease.engine, admission, lease.failure);
    }
    for (const engine of group.engines.values()) {
      for (const record of [...engine.leases]) {
        if (named.get(engine)?.has(record)) continue;
        this.#book.letGo(
          record,
          engine,
          new DualPathError('PEER_LOST', `engine ${engine.name} does not have it any more`),
        );
      }
    }
  }
}

function cancelled(record: RequestRecord): DualPathError {
  return new DualPathError('CANCELLED', `request ${record.name} is over`, { request: record.name });
}
