import { DualPathError, isDualPathError } from '../errors/index.js';
import type { HeldLease, LeaseGrant, LeaseLedger } from '../leases/index.js';
import {
  assignmentMessage,
  assignmentOf,
  chooseVersion,
  count,
  engineMessage,
  engineOf,
  errorOf,
  failureMessage,
  loadOf,
  stageOf,
  stagesOf,
  type EngineCommand,
  type EngineHelloMessage,
  type EngineMessage,
} from '../wire/index.js';
import { ServerStream, type Duplex } from './stream.js';

export interface EngineStreamHost {
  readonly ledger: LeaseLedger;
  readonly epoch: number;
  readonly leaseS: number;
  /** Something has happened: assign and send at the end of the turn. */
  turn(): void;
  /** The leader of a group has a new stream: the older one ends. */
  opened(group: string, stream: EngineStream): void;
  closed(group: string, stream: EngineStream): void;
}

/** An acknowledgement that goes with nothing else waits for so long. */
const acknowledgeMs = 20;
/** Bytes of payloads in one message; what comes after goes in the next. */
const maxBatchBytes = 4 << 20;

/** The stream of a leader: what its group says, and what is gathered for it until the end of the turn. */
export class EngineStream {
  readonly #host: EngineStreamHost;
  readonly #stream: ServerStream<EngineMessage, EngineCommand>;
  /** Engines that were named on this stream, by incarnation. */
  readonly #named = new Map<string, number>();
  #group: string | undefined;
  #out: EngineCommand = {};
  #batchBytes = 0;
  #renewed = 0;
  #sentRenewed = 0;
  #sentAck = 0;
  #sentMs = -Infinity;
  #dirty = false;

  constructor(call: Duplex<EngineMessage, EngineCommand>, host: EngineStreamHost) {
    this.#host = host;
    this.#stream = new ServerStream(
      call,
      (message) => this.#take(message),
      () => {
        if (this.#group !== undefined) host.closed(this.#group, this);
      },
    );
  }

  fail(error: unknown): void {
    this.#stream.fail(error);
  }

  #take(message: EngineMessage): void {
    const { ledger } = this.#host;
    this.#host.turn();
    if (this.#group === undefined) {
      if (!message.hello)
        throw new DualPathError('INVALID_ARGUMENT', 'the first message has no hello; say it first');
      this.#hello(message.hello);
    } else if (message.hello) {
      throw new DualPathError('INVALID_ARGUMENT', 'a second hello; open a stream for each');
    }
    const group = this.#group!;
    if (!ledger.heard(group)) {
      throw new DualPathError('PEER_LOST', `group '${group}' has expired or left; connect again`);
    }
    this.#renewed = count('renewal', message.renewal);
    this.#reports(group, message);
    if (message.drain) ledger.drain(group);
    if (message.leave) ledger.leave(group);
  }

  #reports(group: string, message: EngineMessage): void {
    const { ledger } = this.#host;
    for (const { admission, first, tokens } of message.tokens ?? []) {
      ledger.tokens(
        group,
        count('admission', admission),
        count('first', first),
        Uint32Array.from(tokens ?? []),
      );
    }
    for (const { admission, stages, tokens } of message.stages ?? []) {
      const number = count('admission', admission);
      for (const stage of stages ?? []) ledger.stage(group, number, stageOf(stage), count('tokens', tokens));
    }
    for (const { engine, admission, failure } of message.failures ?? []) {
      ledger.failed(group, engine ?? '', count('admission', admission), errorOf(failure ?? {}));
    }
    for (const engine of message.lostEngines ?? []) ledger.engineLost(group, engine);
    if (!message.fetch) return;
    try {
      const loads = (message.fetch.loads ?? []).map(loadOf);
      ledger.fetch(group, loads, message.fetch.credits ?? 0);
    } catch (error) {
      if (!isDualPathError(error, 'INVALID_ARGUMENT')) throw error;
      (this.#out.notices ??= []).push(failureMessage(error));
    }
  }

  #hello(hello: EngineHelloMessage): void {
    const { ledger, epoch, leaseS } = this.#host;
    const version = chooseVersion(hello.version);
    const group = hello.group ?? '';
    const engines = (hello.engines ?? []).map(engineOf);
    const held = (hello.held ?? []).map(({ engine, held: has }): HeldLease => {
      const assignment = assignmentOf(has?.assignment ?? {});
      const { promptTokens, hitTokens, maxNewTokens, attempt } = has?.assignment ?? {};
      return {
        engine: engine ?? '',
        assignment,
        promptTokens: count('prompt_tokens', promptTokens),
        hitTokens: count('hit_tokens', hitTokens),
        maxNewTokens: count('max_new_tokens', maxNewTokens),
        attempt: count('attempt', attempt),
        done: stagesOf(has?.done),
        failure: has?.failure ? errorOf(has.failure) : undefined,
      };
    });
    this.#out.welcome = { version, epoch, leaseS, heartbeatS: leaseS / 5 };
    // What the ledger tells the group during its hello is for this stream already.
    this.#host.opened(group, this);
    this.#group = group;
    try {
      ledger.hello({ group, model: hello.model ?? '', engines, held });
    } catch (error) {
      this.#group = undefined;
      this.#host.closed(group, this);
      throw error;
    }
  }

  assign(grant: LeaseGrant): void {
    const { assignment, payload, resumeTokens, ...rest } = grant;
    this.#name(assignment.prefillEngine);
    this.#name(assignment.decodeEngine);
    (this.#out.assignments ??= []).push({
      ...assignmentMessage(assignment, this.#host.epoch),
      ...rest,
      ...(payload.length === 0 ? {} : { payload }),
      ...(resumeTokens.length === 0 ? {} : { resumeTokens: [...resumeTokens] }),
    });
    this.#batchBytes += payload.length + 4 * resumeTokens.length;
    this.#dirty = true;
    if (this.#batchBytes > maxBatchBytes) this.flush();
  }

  #name(name: string): void {
    const engine = this.#host.ledger.engine(name);
    if (!engine || this.#named.get(name) === engine.presence.incarnation) return;
    this.#named.set(name, engine.presence.incarnation);
    (this.#out.peers ??= []).push(engineMessage(engine.presence));
  }

  revoke(admission: number, error: DualPathError): void {
    (this.#out.revocations ??= []).push({ admission, failure: failureMessage(error) });
    this.#dirty = true;
  }

  resend(admission: number, first: number): void {
    (this.#out.resends ??= []).push({ admission, first });
    this.#dirty = true;
  }

  drained(): void {
    this.#out.drained = true;
    this.#dirty = true;
  }

  /** Sends what has been gathered, and what was received since the last time. */
  flush(): void {
    const { received } = this.#stream;
    const nowMs = performance.now();
    const news = this.#renewed !== this.#sentRenewed || received !== this.#sentAck;
    const due = news && nowMs - this.#sentMs >= acknowledgeMs;
    if (!this.#dirty && !due && !this.#out.welcome && !this.#out.notices) return;
    this.#sentMs = nowMs;
    const out = this.#out;
    this.#out = {};
    this.#batchBytes = 0;
    this.#dirty = false;
    out.ack = this.#sentAck = received;
    out.renewed = this.#sentRenewed = this.#renewed;
    this.#stream.write(out);
  }
}
