import { DualPathError, isDualPathError } from '../errors/index.js';
import type { RequestFailure } from '../scheduler/index.js';
import type { LeaseContext } from './context.js';
import { DueTimes } from './due-times.js';
import { descriptionOf, nameOf, RequestRecord } from './request-record.js';
import { checkSubmission, keyReused, queueFull, payloadsFull } from './submission.js';
import type { LeaseSubmission } from './types.js';

interface Client {
  attached: boolean;
  goneS: number;
  readonly records: Set<RequestRecord>;
}

const deadlineWidthS = 0.02;
const maxClients = 16_384;

/** Requests by client and key: from submission to outcome, but for the time when engines have them. */
export class RequestTable {
  readonly #context: LeaseContext;
  /** What engines still hold of a request that is over. */
  readonly #stop: (record: RequestRecord, error: DualPathError | undefined) => void;
  readonly #records = new Map<string, RequestRecord>();
  readonly #clients = new Map<string, Client>();
  readonly #parked = new Set<RequestRecord>();
  readonly #deadlines = new DueTimes<RequestRecord>(deadlineWidthS);
  readonly #retention = new DueTimes<RequestRecord>(1);
  /** Ended, oldest first. */
  readonly #retained = new Set<RequestRecord>();
  #payloadBytes = 0;
  /** Nothing that could let the first parked request on has changed since it was tried. */
  #blocked = false;
  #sweptS = 0;
  #completedAtSweep = 0;
  #endedPerS = 0;

  constructor(
    context: LeaseContext,
    stop: (record: RequestRecord, error: DualPathError | undefined) => void,
  ) {
    this.#context = context;
    this.#stop = stop;
  }

  get waiting(): number {
    return this.#parked.size + this.#context.admission.waiting;
  }

  get sizes(): Record<'waiting' | 'parked' | 'retained' | 'clients' | 'payloadBytes', number> {
    const { waiting } = this;
    const [parked, retained, clients] = [this.#parked.size, this.#retained.size, this.#clients.size];
    return { waiting, parked, retained, clients, payloadBytes: this.#payloadBytes };
  }

  get(name: string): RequestRecord | undefined {
    return this.#records.get(name);
  }

  all(): IterableIterator<RequestRecord> {
    return this.#records.values();
  }

  /** A client's stream is there. @throws CAPACITY_EXHAUSTED */
  attach(client: string): void {
    const known = this.#clients.get(client);
    if (known) known.attached = true;
    else if (this.#clients.size >= maxClients) {
      throw new DualPathError('CAPACITY_EXHAUSTED', `${maxClients} clients are here, the most that may be`, {
        limit: maxClients,
      });
    } else this.#clients.set(client, { attached: true, goneS: 0, records: new Set() });
  }

  detach(client: string): void {
    const known = this.#clients.get(client);
    if (!known) return;
    known.attached = false;
    known.goneS = this.#context.nowS;
    for (const record of known.records) record.attached = false;
  }

  /** A request, for the first time or again; what is wrong with it is told to the client. */
  submit(client: string, submission: LeaseSubmission): void {
    const { sink } = this.#context;
    const { key } = submission;
    const name = nameOf(client, key);
    try {
      checkSubmission(submission, this.#context.options);
      const known = this.#records.get(name);
      if (known && !known.orphan && !isSame(known, submission)) throw keyReused(name);
      if (known) this.#again(known, submission);
      else this.#first(client, name, submission);
    } catch (cause) {
      if (!isDualPathError(cause)) throw cause;
      const full = cause.code === 'CAPACITY_EXHAUSTED';
      const retryAfterS = full ? this.#retryAfterS() : 0;
      this.#context.counts.refused++;
      this.#context.emit({ kind: 'refused', request: name, error: cause, retryAfterS });
      sink.refused(client, key, cause, retryAfterS);
    }
  }

  #first(client: string, name: string, submission: LeaseSubmission): void {
    const { options, counts, nowS, sink } = this.#context;
    const { waiting } = this;
    if (waiting >= options.maxWaiting) throw queueFull(name, waiting, options.maxWaiting);
    const record = new RequestRecord(client, submission.key, descriptionOf(name, submission), nowS);
    this.#take(record, submission);
    try {
      if (this.#context.grace || !this.#enqueue(record)) this.park(record);
    } catch (error) {
      this.#forget(record);
      throw error;
    }
    counts.submitted++;
    this.#context.emit({ kind: 'submitted', request: name });
    sink.accepted(client, submission.key);
  }

  /** What a submission brings besides the description. */
  #take(record: RequestRecord, submission: LeaseSubmission): void {
    const { options, nowS } = this.#context;
    const { payload, deadlineS, received } = submission;
    const bytes = payload?.length ?? 0;
    if (this.#payloadBytes + bytes > options.maxTotalPayloadBytes) {
      throw payloadsFull(record.name, this.#payloadBytes, options.maxTotalPayloadBytes);
    }
    if (payload) record.payload = payload;
    this.#payloadBytes += bytes;
    record.traceparent = submission.traceparent ?? '';
    record.wantsProgress = submission.progress ?? false;
    if (deadlineS !== undefined) record.deadlineS = nowS + deadlineS;
    if (received) record.log.append(0, received);
    record.attached = true;
    record.sent = received?.length ?? 0;
    this.#add(record);
    this.#deadlines.add(record.deadlineS, record);
  }

  #add(record: RequestRecord): void {
    this.#records.set(record.name, record);
    const client = this.#clients.get(record.client) ?? {
      attached: false,
      goneS: this.#context.nowS,
      records: new Set(),
    };
    this.#clients.set(record.client, client);
    client.records.add(record);
  }

  #again(record: RequestRecord, submission: LeaseSubmission): void {
    const { sink, counts } = this.#context;
    counts.resubmitted++;
    if (record.orphan) {
      record.description = descriptionOf(record.name, submission);
      this.#take(record, submission);
      record.orphan = false;
    }
    // Twice on one stream: what has been sent on it is on its way.
    if (!record.attached) record.sent = Math.min(submission.received?.length ?? 0, record.log.count);
    record.attached = true;
    record.acknowledged = false;
    sink.accepted(record.client, record.key);
    this.sendTokens(record);
    if (record.outcome) sink.ended(record.client, record.key, record.outcome);
  }

  /** What the client has not been sent yet. */
  sendTokens(record: RequestRecord): void {
    if (!record.attached || record.sent >= record.log.count) return;
    const tokens = record.log.from(record.sent);
    this.#context.sink.tokens(record.client, record.key, record.sent, tokens);
    record.sent = record.log.count;
  }

  /** Engines have it, and no client has submitted it to this scheduler yet. */
  adopt(client: string, key: string, submission: LeaseSubmission): RequestRecord {
    const { nowS } = this.#context;
    const record = new RequestRecord(client, key, descriptionOf(nameOf(client, key), submission), nowS);
    record.orphan = true;
    this.#add(record);
    return record;
  }

  /** False if it has to wait outside. @throws what refuses it for good */
  #enqueue(record: RequestRecord): boolean {
    try {
      this.#context.admission.submit(record.description, record.arrivedS);
    } catch (error) {
      if (isDualPathError(error, 'PEER_LOST')) return false;
      throw error;
    }
    record.state = 'queued';
    this.#context.emit({ kind: 'queued', request: record.name });
    return true;
  }

  /** Out of the scheduler's queue, or back from engines: it goes on when it can. */
  park(record: RequestRecord): void {
    record.state = 'parked';
    record.parkedS = this.#context.nowS;
    this.#parked.add(record);
    this.#context.emit({ kind: 'parked', request: record.name });
    this.#blocked = false;
  }

  unpark(record: RequestRecord): void {
    this.#parked.delete(record);
  }

  /** An engine has joined. */
  changed(): void {
    this.#blocked = false;
  }

  /** Puts into the scheduler's queue what is parked. */
  enqueueParked(): void {
    if (this.#blocked || this.#context.grace) return;
    for (const record of this.#parked) {
      try {
        if (!this.#enqueue(record)) {
          this.#blocked = true;
          return;
        }
        this.#parked.delete(record);
      } catch (error) {
        if (!isDualPathError(error)) throw error;
        this.end(record, error);
      }
    }
  }

  /** Requests that waited only for an engine that is lost now. */
  waitingLost(failures: readonly RequestFailure[]): void {
    for (const { request } of failures) {
      const record = this.#records.get(request);
      if (record?.state === 'queued') this.park(record);
    }
  }

  cancel(client: string, key: string): void {
    const record = this.#records.get(nameOf(client, key));
    if (!record || record.state === 'ended') return;
    this.end(record, new DualPathError('CANCELLED', `request ${record.name} was cancelled by its client`));
  }

  acknowledge(client: string, key: string): void {
    const record = this.#records.get(nameOf(client, key));
    if (record?.state !== 'ended') return;
    record.acknowledged = true;
    this.released(record);
  }

  /** Its outcome, once; engines that still hold it are told. */
  end(record: RequestRecord, error: DualPathError | undefined): void {
    const { admission, sink, counts, nowS, options } = this.#context;
    if (record.state === 'ended') return;
    const { name, state, assignment } = record;
    this.#parked.delete(record);
    if (state === 'queued' || record.admitted) {
      if (error) admission.end(name, error);
      else admission.complete(name, 'request', assignment?.admission);
    }
    record.admitted = false;
    record.state = 'ended';
    this.#deadlines.remove(record.deadlineS, record);
    const decodeEngine = assignment?.decodeEngine;
    record.outcome = { error, attempts: record.tries, tokens: record.log.count, decodeEngine };
    if (error) counts.failed++;
    else counts.completed++;
    this.#payloadBytes -= record.payload.length;
    record.payload = noPayload;
    this.#context.emit({
      kind: 'ended',
      request: name,
      error,
      attempts: record.tries,
      ranS: nowS - record.arrivedS,
    });
    this.#stop(record, error);
    this.#retained.add(record);
    this.#retention.add(nowS + options.retainS, record);
    record.deadlineS = nowS + options.retainS;
    if (record.attached) {
      this.sendTokens(record);
      sink.ended(record.client, record.key, record.outcome);
    }
    if (this.#retained.size > options.maxRetained) this.#forgetOldest();
  }

  #forgetOldest(): void {
    for (const record of this.#retained) {
      this.#context.counts.forgottenOutcomes++;
      this.#forget(record);
      return;
    }
  }

  /** No engine holds it any more. */
  released(record: RequestRecord): void {
    if (record.state === 'ended' && record.acknowledged && record.holders.length === 0) this.#forget(record);
  }

  /** As if it had never been; a client that submits it again has it run. */
  #forget(record: RequestRecord): void {
    if (record.state !== 'ended') {
      this.#deadlines.remove(record.deadlineS, record);
      this.#payloadBytes -= record.payload.length;
    } else this.#retention.remove(record.deadlineS, record);
    this.#parked.delete(record);
    this.#retained.delete(record);
    if (this.#records.get(record.name) === record) this.#records.delete(record.name);
    const client = this.#clients.get(record.client);
    client?.records.delete(record);
    if (client && !client.attached && client.records.size === 0) this.#clients.delete(record.client);
  }

  /** An orphan lost its engines, and there is nobody to run it for. */
  forgetOrphan(record: RequestRecord): void {
    this.#forget(record);
  }

  /** What time brings about. */
  sweep(): void {
    const { nowS, options } = this.#context;
    for (const record of this.#deadlines.take(nowS)) {
      const message = `request ${record.name} had to end within ${(record.deadlineS - record.arrivedS).toFixed(3)} s`;
      this.end(record, new DualPathError('DEADLINE', message, { request: record.name }));
    }
    for (const record of this.#retention.take(nowS)) {
      if (!record.acknowledged) this.#context.counts.forgottenOutcomes++;
      this.#forget(record);
    }
    if (nowS - this.#sweptS < 1) return;
    this.#endedPerS = (this.#context.counts.completed - this.#completedAtSweep) / (nowS - this.#sweptS);
    this.#completedAtSweep = this.#context.counts.completed;
    this.#sweptS = nowS;
    for (const record of this.#parked) {
      if (this.#context.grace || nowS - record.parkedS < options.noEngineS) continue;
      const message = `request ${record.name} found no engine that could hold it in ${options.noEngineS} s; start some`;
      this.end(record, new DualPathError('PEER_LOST', message, { request: record.name }));
    }
    this.#cancelGone();
  }

  #cancelGone(): void {
    const { nowS, options } = this.#context;
    for (const [name, client] of this.#clients) {
      if (client.attached || nowS - client.goneS < options.clientGoneS) continue;
      for (const record of [...client.records]) this.cancel(name, record.key);
      if (client.records.size === 0) this.#clients.delete(name);
    }
  }

  /** By when the queue has moved on by a tenth, from what ends in a second. */
  #retryAfterS(): number {
    return Math.min(30, Math.max(0.1, this.waiting / 10 / Math.max(this.#endedPerS, 1)));
  }
}

const noPayload = new Uint8Array();

function isSame({ description }: RequestRecord, submission: LeaseSubmission): boolean {
  return (
    description.promptTokens === submission.promptTokens &&
    description.maxNewTokens === submission.maxNewTokens
  );
}
