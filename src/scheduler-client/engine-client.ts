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
import { tracerOf } from '../tracing/index.js';
import { AssignmentQueue } from './assignment-queue.js';
import { Connection, type EndpointOptions } from './connection.js';
import {
  failureOf,
  heldMessage,
  leaseOf,
  leaseOver,
  stageDone,
  type AssignmentDetails,
  type EngineLease,
} from './engine-lease.js';
import { LivingEngines, type GroupEngine } from './living-engines.js';
import { Renewals } from './renewals.js';

export interface EngineClientOptions extends EndpointOptions {
  readonly model: string;
  /** The group that this leader speaks for. */
  readonly group: string;
  /** Its engines, all of one role; incarnations default to the time of the start. */
  readonly engines: readonly GroupEngine[];
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
  readonly #queue: AssignmentQueue;
  readonly #tracer = tracerOf();
  readonly #renewals = new Renewals();
  /** Over, and not told yet; told, by the number of the message, and not acknowledged yet. */
  #ending: EngineLease[] = [];
  #told: { readonly number: number; readonly leases: readonly EngineLease[] }[] = [];
  #out: EngineMessage = {};
  #loads: readonly EngineLoad[] = [];
  #epoch = 0;
  readonly #living: LivingEngines;
  #welcomed = false;
  #heartbeat: NodeJS.Timeout | undefined;
  #draining: { readonly promise: Promise<void>; resolve(): void } | undefined;
  #ended: DualPathError | undefined;
  #joined: { resolve(): void; reject(error: DualPathError): void } | undefined;
  /** A scheduler knows the group. Rejects when none ever will. */
  readonly joined: Promise<void>;

  constructor(options: EngineClientOptions) {
    this.#options = options;
    this.#queue = new AssignmentQueue(options.group);
    this.#living = new LivingEngines(options.engines);
    this.joined = new Promise((resolve, reject) => {
      this.#joined = { resolve, reject };
    });
    this.joined.catch(() => undefined);
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
    if (group !== this.#options.group) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `the client of '${this.#options.group}' is not of '${group}'`,
      );
    }
    this.#queue.check(signal);
    this.#loads = loads;
    this.#fetch();
    return await this.#queue.take(signal);
  }

  complete(request: string, stage: Stage, admission?: number): void {
    const lease = this.#find(request, admission);
    if (!lease || lease.over || lease.done.has(stage)) return;
    stageDone(lease, stage);
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

  /** An engine of the group has died: its requests go to others at once, and are none of this group's any more. */
  engineLost(engine: string): void {
    if (!this.#living.lost(engine)) return;
    const error = new DualPathError('PEER_LOST', `engine ${engine} was lost`, { engine });
    for (const [admission, lease] of this.#leases) {
      if (lease.engine !== engine) continue;
      leaseOver(lease, error);
      this.#leases.delete(admission);
      this.#queue.withdraw(admission);
    }
    (this.#out.lostEngines ??= []).push(engine);
    this.#flush();
    // A group of no engines is none.
    if (this.#living.size === 0) this.#connection.pause();
  }

  /** It has been started anew: a new hello names it, as another incarnation. */
  engineStarted(engine: string): void {
    this.engineLost(engine);
    if (this.#ended || !this.#living.started(engine)) return;
    this.#connection.resume(new DualPathError('PEER_LOST', `engine ${engine} was started anew`, { engine }));
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
    leaseOver(lease, lease.failure);
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
    const credits = Math.max(0, (this.#options.credits ?? 256) - this.#queue.length);
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
    const engines = this.#living.presences().map(engineMessage);
    this.#renewals.reset();
    return {
      hello: { version: protocolVersions, model, group, engines, held },
      renewal: this.#renewals.next(),
    };
  }

  #received(command: EngineCommand): void {
    if (command.welcome) this.#onWelcome(command.welcome);
    const { renewed = 0, ack = 0 } = command;
    this.#renewals.returned(renewed);
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
    this.#renewals.leaseMs = leaseS * 1000;
    this.#welcomed = true;
    this.#joined?.resolve();
    if (this.#heartbeat !== undefined) this.#beat(heartbeatS * 1000);
    if (this.#draining) this.#out.drain = true;
    for (const lease of this.#leases.values()) {
      // The scheduler may be a new one, that has not heard them.
      if (!lease.failure) this.#again(lease, 0);
    }
    if (this.#queue.awaited) this.#fetch();
    this.#turn.ask();
  }

  #assigned(messages: readonly AssignmentMessage[]): void {
    const fresh: Assignment[] = [];
    for (const message of messages) {
      const assignment = assignmentOf(message);
      const { prefillEngine, decodeEngine, admission } = assignment;
      const engine = [prefillEngine, decodeEngine].find((name) => this.#living.has(name));
      if (engine === undefined || this.#leases.has(admission)) continue;
      this.#leases.set(admission, leaseOf(engine, assignment, message, this.#tracer));
      fresh.push(assignment);
    }
    this.#queue.push(fresh);
  }

  #revoked(admission: number, error: DualPathError): void {
    const lease = this.#leases.get(admission);
    if (!lease || lease.over) return; // the scheduler has been told, or will be
    lease.revoked = true;
    const { request } = lease.assignment;
    if (this.#queue.withdraw(admission)) this.fail(request, error, admission);
    else this.#options.onRevoked(request, error, admission);
  }

  #flush(): void {
    if (!this.#welcomed || this.#connection.congested) {
      if (this.#welcomed) setTimeout(() => this.#turn.ask(), 1).unref();
      return;
    }
    const out = this.#out;
    this.#out = {};
    out.renewal = this.#renewals.next();
    const number = this.#connection.send(out)!;
    if (this.#ending.length === 0) return;
    this.#told.push({ number, leases: this.#ending });
    this.#ending = [];
  }

  /** Says that the group is alive, and looks whether the scheduler thinks so. */
  #beat(everyMs: number): void {
    clearTimeout(this.#heartbeat);
    this.#heartbeat = setTimeout(() => {
      if (this.#renewals.expired) this.#fence();
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
    this.#living.renew();
    this.#renewals.leaseMs = Infinity;
    this.#queue.clear();
    const given = [...this.#leases.values()].filter(({ over }) => !over);
    for (const lease of this.#leases.values()) leaseOver(lease, error);
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
    this.#joined?.reject(error);
    this.#queue.end(error);
    this.#draining?.resolve();
  }
}
