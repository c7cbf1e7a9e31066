import { DualPathError } from '../errors/index.js';
import type { EnginePresence } from '../leases/index.js';
import type { Assignment, EngineLoad, SchedulerClient, Stage } from '../scheduler/index.js';
import {
  assignmentOf,
  engineMessage,
  engineOf,
  errorOf,
  failureMessage,
  loadMessage,
  protocolVersions,
  schedulerService,
  Turn,
  stageNumber,
  type AssignmentMessage,
  type EngineCommand,
  type EngineMessage,
} from '../wire/index.js';
import { Connection, type EndpointOptions } from './connection.js';
import { failureOf, heldMessage, leaseOf, type AssignmentDetails, type EngineLease } from './engine-lease.js';

export interface EngineClientOptions extends EndpointOptions {
  readonly model: string;
  /** The group that this leader speaks for. */
  readonly group: string;
  /** Its engines, all of one role; incarnations default to the time of the start. */
  readonly engines: readonly (Omit<EnginePresence, 'incarnation' | 'addresses'> & Partial<EnginePresence>)[];
  /** Assignments that the group takes before it fetches again; default 256. */
  readonly credits?: number;
  /**
   * The scheduler has taken a request back: work on it stops, and `fail` is called when nothing of it is in flight any
   * more. Must not throw.
   */
  readonly onRevoked: (request: string, error: DualPathError, admission: number) => void;
  /** Of things that go on by themselves: connections lost, messages refused in part. */
  readonly onNotice?: (error: DualPathError) => void;
}

/**
 * A group's side of the control plane: the `SchedulerClient` that `PrefillEngine` and `DecodeEngine` are given. It keeps
 * what the group holds, so that a lost connection or a restarted scheduler costs no request; when it has not heard that
 * its leases are renewed for the time of a lease, it gives all of them up.
 */
export class EngineClient implements SchedulerClient {
  readonly #options: EngineClientOptions;
  readonly #connection: Connection<EngineMessage, EngineCommand>;
  readonly #turn = new Turn(() => this.#flush());
  readonly #leases = new Map<number, EngineLease>();
  readonly #peers = new Map<string, EnginePresence>();
  readonly #buffered: Assignment[] = [];
  /** Over, and not told yet; told, by the number of the message, and not acknowledged yet. */
  #ending: EngineLease[] = [];
  #told: { readonly number: number; readonly leases: readonly EngineLease[] }[] = [];
  #out: EngineMessage = {};
  #loads: readonly EngineLoad[] = [];
  #waiter: { resolve(assignments: Assignment[]): void; reject(error: DualPathError): void } | undefined;
  #epoch = 0;
  #leaseMs = Infinity;
  #incarnation = Date.now();
  #welcomed = false;
  #renewal = 0;
  /** When each renewal that has not come back was sent, oldest first. */
  #renewals: { readonly number: number; readonly atMs: number }[] = [];
  #renewedMs = performance.now();
  #heartbeat: NodeJS.Timeout | undefined;
  #draining: { readonly promise: Promise<void>; resolve(): void } | undefined;
  #ended: DualPathError | undefined;

  constructor(options: EngineClientOptions) {
    this.#options = options;
    this.#connection = new Connection<EngineMessage, EngineCommand>(options, schedulerService.Engines, {
      hello: () => this.#hello(),
      received: (command) => this.#received(command),
      lost: (error) => {
        this.#welcomed = false;
        options.onNotice?.(error);
      },
      refused: (error) => this.#end(error),
    });
    this.#beat(200);
  }

  submit(): Promise<void> {
    return Promise.reject(
      new DualPathError('INVALID_ARGUMENT', 'an engine submits nothing; use a RequestClient'),
    );
  }

  async fetch(group: string, loads: readonly EngineLoad[], signal?: AbortSignal): Promise<Assignment[]> {
    if (this.#ended) throw this.#ended;
    if (signal?.aborted) throw cancelledFetch(group);
    if (group !== this.#options.group) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `the client of '${this.#options.group}' is not of '${group}'`,
      );
    }
    if (this.#waiter) {
      throw new DualPathError(
        'CAPACITY_EXHAUSTED',
        `group ${group} already has a fetch outstanding, the limit is 1: wait for it or abort it first`,
        { group, limit: 1 },
      );
    }
    this.#loads = loads;
    this.#fetch();
    if (this.#buffered.length > 0) return this.#buffered.splice(0);
    return await new Promise((resolve, reject) => {
      const settle = (): void => {
        this.#waiter = undefined;
        signal?.removeEventListener('abort', onAbort);
      };
      const onAbort = (): void => this.#waiter?.reject(cancelledFetch(group));
      signal?.addEventListener('abort', onAbort);
      const settled =
        <T>(then: (value: T) => void): ((value: T) => void) =>
        (value) => {
          settle();
          then(value);
        };
      this.#waiter = { resolve: settled(resolve), reject: settled(reject) };
    });
  }

  complete(request: string, stage: Stage, admission?: number): void {
    const lease = this.#find(request, admission);
    if (!lease || lease.over || lease.done.has(stage)) return;
    lease.done.add(stage);
    this.#done(lease, stage);
    if (stage === 'request' || stage === 'prefill') this.#over(lease);
  }

  fail(request: string, error: Error, admission?: number): void {
    const lease = this.#find(request, admission);
    if (!lease || lease.over) return;
    lease.failure = failureOf(lease, error);
    const { engine, assignment } = lease;
    const failure = failureMessage(lease.failure);
    (this.#out.failures ??= []).push({ engine, admission: assignment.admission, failure });
    this.#over(lease);
    this.#turn.ask();
  }

  cancel(request: string): void {
    this.fail(request, new DualPathError('CANCELLED', `request ${request} was cancelled`, { request }));
  }

  epoch(): number {
    return this.#epoch;
  }

  /** Tokens that a request generates, from index `first` on. */
  tokens(admission: number, first: number, tokens: Uint32Array): void {
    const lease = this.#leases.get(admission);
    const fresh = lease && !lease.over ? lease.tokens.append(first, tokens) : undefined;
    if (!lease || !fresh || fresh.length === 0) return;
    this.#report(lease, lease.tokens.count - fresh.length);
  }

  /** undefined once it is over. */
  details(admission: number): AssignmentDetails | undefined {
    return this.#leases.get(admission)?.details;
  }

  /** By name, as a `PromptSource` is asked. */
  detailsOf(request: string): AssignmentDetails | undefined {
    return this.#find(request, undefined)?.details;
  }

  /** An engine that an assignment has named: where it is reached. */
  peer(engine: string): EnginePresence | undefined {
    return this.#peers.get(engine);
  }

  /** What this group holds. */
  get leases(): number {
    return [...this.#leases.values()].filter(({ over }) => !over).length;
  }

  /** Takes no more; resolves when all has ended. */
  drain(): Promise<void> {
    if (this.#draining) return this.#draining.promise;
    const draining = { resolve: (): void => undefined };
    const promise = new Promise<void>((resolve) => Object.assign(draining, { resolve }));
    this.#draining = Object.assign(draining, { promise });
    this.#out.drain = true;
    this.#turn.ask();
    return promise;
  }

  /** An engine of the group has died: its requests go to others at once. */
  engineLost(engine: string): void {
    (this.#out.lostEngines ??= []).push(engine);
    this.#turn.ask();
  }

  /** Nothing is in flight any more: the group leaves, and what it still held goes to others at once. Idempotent. */
  async close(): Promise<void> {
    if (this.#heartbeat === undefined) return;
    clearTimeout(this.#heartbeat);
    this.#heartbeat = undefined;
    this.#out.leave = true;
    this.#flush();
    this.#end(new DualPathError('CLOSED', `group '${this.#options.group}' has been closed`));
    await this.#connection.close();
  }

  #find(request: string, admission: number | undefined): EngineLease | undefined {
    if (admission !== undefined) return this.#leases.get(admission);
    return [...this.#leases.values()].findLast(({ assignment }) => assignment.request === request);
  }

  #over(lease: EngineLease): void {
    lease.over = true;
    this.#ending.push(lease);
  }

  #done({ assignment: { admission }, tokens }: EngineLease, stage: Stage): void {
    const all = stage === 'request' ? { tokens: tokens.count } : {};
    (this.#out.stages ??= []).push({ admission, stages: [stageNumber[stage]], ...all });
    this.#turn.ask();
  }

  #report({ assignment, tokens }: EngineLease, first: number): void {
    (this.#out.tokens ??= []).push({
      admission: assignment.admission,
      first,
      tokens: [...tokens.from(first)],
    });
    this.#turn.ask();
  }

  /** Tokens, and that they were all if they were. */
  #again(lease: EngineLease, first: number): void {
    if (lease.tokens.count > first) this.#report(lease, first);
    if (!lease.done.has('request')) return;
    this.#done(lease, 'request');
    if (!this.#ending.includes(lease)) this.#ending.push(lease);
  }

  #fetch(): void {
    const credits = Math.max(0, (this.#options.credits ?? 256) - this.#buffered.length);
    this.#out.fetch = { loads: this.#loads.map(loadMessage), credits };
    this.#turn.ask();
  }

  /** All that the group has, and nothing that was said on an earlier stream and may not have arrived. */
  #hello(): EngineMessage {
    const { model, group } = this.#options;
    this.#out = {};
    const held = [...this.#leases.values()].map(heldMessage);
    const over = [...this.#leases.values()].filter((lease) => lease.over);
    this.#ending = over.filter(({ done }) => done.has('request'));
    this.#told = [{ number: 1, leases: over.filter(({ done }) => !done.has('request')) }];
    const engines = this.#presences().map(engineMessage);
    this.#renewals = [];
    return { hello: { version: protocolVersions, model, group, engines, held }, renewal: this.#renew() };
  }

  #presences(): EnginePresence[] {
    return this.#options.engines.map(({ capacity, incarnation, addresses }) => ({
      capacity,
      addresses: addresses ?? {},
      incarnation: Math.max(incarnation ?? 0, this.#incarnation),
    }));
  }

  #renew(): number {
    const number = ++this.#renewal;
    this.#renewals.push({ number, atMs: performance.now() });
    return number;
  }

  #received(command: EngineCommand): void {
    if (command.welcome) this.#onWelcome(command.welcome);
    const { renewed = 0, ack = 0 } = command;
    while (this.#renewals.length > 0 && this.#renewals[0]!.number <= renewed) {
      this.#renewedMs = this.#renewals.shift()!.atMs;
    }
    while (this.#told.length > 0 && this.#told[0]!.number <= ack) {
      for (const { assignment } of this.#told.shift()!.leases) this.#leases.delete(assignment.admission);
    }
    for (const peer of command.peers ?? []) {
      const presence = engineOf(peer);
      this.#peers.set(presence.capacity.engine, presence);
    }
    this.#assigned(command.assignments ?? []);
    for (const { admission = 0, failure } of command.revocations ?? []) {
      this.#revoked(admission, errorOf(failure ?? {}));
    }
    for (const { admission = 0, first = 0 } of command.resends ?? []) {
      const lease = this.#leases.get(admission);
      if (lease) this.#again(lease, first);
    }
    for (const notice of command.notices ?? []) this.#options.onNotice?.(errorOf(notice));
    if (command.drained) this.#draining?.resolve();
  }

  #onWelcome({ epoch = 0, leaseS = 0, heartbeatS = 0 }: NonNullable<EngineCommand['welcome']>): void {
    if (epoch < this.#epoch) {
      throw new DualPathError(
        'PEER_LOST',
        `the scheduler of epoch ${epoch} has been replaced by ${this.#epoch}`,
      );
    }
    this.#epoch = epoch;
    this.#leaseMs = leaseS * 1000;
    this.#welcomed = true;
    if (this.#heartbeat !== undefined) this.#beat(heartbeatS * 1000);
    if (this.#draining) this.#out.drain = true;
    for (const lease of this.#leases.values()) {
      // The scheduler may be a new one, that has not heard them.
      if (!lease.failure) this.#again(lease, 0);
    }
    if (this.#waiter) this.#fetch();
    this.#turn.ask();
  }

  #assigned(messages: readonly AssignmentMessage[]): void {
    const names = new Set(this.#options.engines.map(({ capacity }) => capacity.engine));
    for (const message of messages) {
      const assignment = assignmentOf(message);
      const { prefillEngine, decodeEngine, admission } = assignment;
      const engine = [prefillEngine, decodeEngine].find((name) => names.has(name));
      if (engine === undefined || this.#leases.has(admission)) continue;
      this.#leases.set(admission, leaseOf(engine, assignment, message));
      this.#buffered.push(assignment);
    }
    if (this.#buffered.length > 0) this.#waiter?.resolve(this.#buffered.splice(0));
  }

  #revoked(admission: number, error: DualPathError): void {
    const lease = this.#leases.get(admission);
    if (!lease || lease.over) return; // the scheduler has been told, or will be
    lease.revoked = true;
    const { request } = lease.assignment;
    const waits = this.#buffered.findIndex((assignment) => assignment.admission === admission);
    if (waits < 0) {
      this.#options.onRevoked(request, error, admission);
    } else {
      this.#buffered.splice(waits, 1);
      this.fail(request, error, admission);
    }
  }

  #flush(): void {
    if (!this.#welcomed || this.#connection.congested) {
      if (this.#welcomed) setTimeout(() => this.#turn.ask(), 1).unref();
      return;
    }
    const out = this.#out;
    this.#out = {};
    out.renewal = this.#renew();
    const number = this.#connection.send(out)!;
    if (this.#ending.length === 0) return;
    this.#told.push({ number, leases: this.#ending });
    this.#ending = [];
  }

  /** Says that the group is alive, and looks whether the scheduler thinks so. */
  #beat(everyMs: number): void {
    clearTimeout(this.#heartbeat);
    this.#heartbeat = setTimeout(() => {
      if (performance.now() - this.#renewedMs > this.#leaseMs) this.#fence();
      if (this.#welcomed) this.#turn.ask();
      this.#beat(everyMs);
    }, everyMs);
  }

  /** The scheduler may have given all to others: the group starts as a new one. */
  #fence(): void {
    const error = new DualPathError(
      'PEER_LOST',
      `leases of group '${this.#options.group}' were not renewed in time`,
    );
    this.#options.onNotice?.(error);
    this.#incarnation = Math.max(this.#incarnation + 1, Date.now());
    this.#leaseMs = Infinity;
    this.#buffered.length = 0;
    const given = [...this.#leases.values()].filter(({ over }) => !over);
    this.#leases.clear();
    this.#ending = [];
    this.#told = [];
    for (const { assignment } of given)
      this.#options.onRevoked(assignment.request, error, assignment.admission);
    this.#connection.reset(error);
  }

  #end(error: DualPathError): void {
    this.#ended ??= error;
    clearTimeout(this.#heartbeat);
    this.#heartbeat = undefined;
    this.#waiter?.reject(error);
    this.#draining?.resolve();
  }
}

function cancelledFetch(group: string): DualPathError {
  return new DualPathError('CANCELLED', `the fetch of group ${group} was aborted by its caller`, { group });
}
