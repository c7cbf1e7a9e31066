import { createHash, timingSafeEqual } from 'node:crypto';
import {
  Metadata,
  Server,
  ServerCredentials,
  status,
  type ServerUnaryCall,
  type sendUnaryData,
} from '@grpc/grpc-js';
import { HealthImplementation } from 'grpc-health-check';
import { addressText, checkReach, checkToken, type Address, type TlsFiles } from '../control/index.js';
import { DualPathError } from '../errors/index.js';
import { LeaseLedger, type LeaseEvent, type LeaseOptions, type LeaseSink } from '../leases/index.js';
import { scheduleSpans, tracerOf } from '../tracing/index.js';
import {
  engineMessage,
  maxMessageBytes,
  protocolVersions,
  schedulerService,
  serviceName,
  Turn,
  type Description,
  type EngineCommand,
  type EngineMessage,
  type ExplainRequest,
  type Explanation,
  type RequestEvent,
  type RequestMessage,
} from '../wire/index.js';
import { EngineStream } from './engine-stream.js';
import { AloneMembership, type Leadership, type Membership } from './membership.js';
import { RequestStream } from './request-stream.js';
import type { Duplex } from './stream.js';

export interface ServeOptions {
  readonly listen: Address;
  readonly leases: Omit<LeaseOptions, 'epoch'>;
  /** Every call must bring it; without one the service is for this host alone. */
  readonly token?: Uint8Array;
  readonly tls?: TlsFiles;
  /** Hear of all that happens, besides `leases.observe`; must not throw. */
  readonly observers?: readonly ((event: LeaseEvent) => void)[];
  /** What was decided of a request, as one JSON document; left out: decisions are not kept. */
  readonly explain?: (request: string) => string | undefined;
  /** Given where it listens; default: this scheduler is the only one. */
  readonly membership?: (listening: Address) => Membership;
  /** It leads, with this epoch; undefined: no more. Must not throw. */
  readonly onLeading?: (epoch: number | undefined) => void;
}

/** How often time is looked at where nothing else happens. */
const tickMs = 20;
/** Under load messages of all streams are gathered for so long: each costs more than what is in it. */
const gatherMs = 1;

/** One term of leading: a ledger and the streams that speak to it. */
class Term implements LeaseSink {
  readonly ledger: LeaseLedger;
  readonly epoch: number;
  readonly leaseS: number;
  readonly model: string;
  readonly maxWaiting: number;
  readonly maxPayloadBytes: number;
  readonly #engines = new Map<string, EngineStream>();
  readonly #clients = new Map<string, RequestStream>();
  readonly #tick: NodeJS.Timeout;

  constructor(options: LeaseOptions) {
    this.ledger = new LeaseLedger(options, this);
    const { maxWaiting, maxPayloadBytes, leaseS } = this.ledger.options;
    this.epoch = options.epoch;
    this.model = options.model;
    this.leaseS = leaseS;
    this.maxWaiting = maxWaiting;
    this.maxPayloadBytes = maxPayloadBytes;
    this.ledger.at(performance.now() / 1000);
    this.#tick = setInterval(() => this.turn(), tickMs);
  }

  readonly #turn = new Turn(() => {
    this.ledger.at(performance.now() / 1000);
    this.ledger.schedule();
    for (const stream of this.#engines.values()) stream.flush();
    for (const stream of this.#clients.values()) stream.flush();
  }, gatherMs);

  /** An event is about to be dealt with; what it leads to is sent at the end of the turn of the event loop. */
  turn(): void {
    if (this.#turn.ask()) this.ledger.at(performance.now() / 1000);
  }

  readonly engineHost = {
    opened: (group: string, stream: EngineStream): void => {
      const older = this.#engines.get(group);
      this.#engines.set(group, stream);
      older?.fail(superseded('group', group));
    },
    closed: (group: string, stream: EngineStream): void => {
      if (this.#engines.get(group) !== stream) return;
      this.#engines.delete(group);
      this.ledger.disconnected(group);
    },
  };

  readonly clientHost = {
    opened: (client: string, stream: RequestStream): void => {
      const older = this.#clients.get(client);
      this.#clients.set(client, stream);
      older?.fail(superseded('client', client));
      if (older) this.ledger.detach(client);
    },
    closed: (client: string, stream: RequestStream): void => {
      if (this.#clients.get(client) !== stream) return;
      this.#clients.delete(client);
      this.ledger.detach(client);
    },
  };

  end(error: DualPathError): void {
    clearInterval(this.#tick);
    for (const stream of [...this.#engines.values(), ...this.#clients.values()]) stream.fail(error);
  }

  assign: LeaseSink['assign'] = (group, grant) => this.#engines.get(group)?.assign(grant);
  revoke: LeaseSink['revoke'] = (group, admission, error) =>
    this.#engines.get(group)?.revoke(admission, error);
  resend: LeaseSink['resend'] = (group, admission, first) =>
    this.#engines.get(group)?.resend(admission, first);
  drained: LeaseSink['drained'] = (group) => this.#engines.get(group)?.drained();
  accepted: LeaseSink['accepted'] = (client, key) => this.#clients.get(client)?.accepted(key);
  refused: LeaseSink['refused'] = (client, key, error, retryAfterS) =>
    this.#clients.get(client)?.refused(key, error, retryAfterS);
  progress: LeaseSink['progress'] = (client, key, what) => this.#clients.get(client)?.progress(key, what);
  tokens: LeaseSink['tokens'] = (client, key, first, tokens) =>
    this.#clients.get(client)?.tokens(key, first, tokens);
  ended: LeaseSink['ended'] = (client, key, outcome) => this.#clients.get(client)?.ended(key, outcome);
}

/** The request scheduler as a gRPC service (docs/control-plane.md). */
export class SchedulerServer {
  readonly #options: ServeOptions;
  readonly #server: Server;
  readonly #health = new HealthImplementation({ '': 'NOT_SERVING', [serviceName]: 'NOT_SERVING' });
  #membership: Membership = new AloneMembership();
  readonly #closing = new AbortController();
  readonly #tokenDigest: Buffer | undefined;
  #address: Address;
  #term: Term | undefined;
  #leading: Promise<void> = Promise.resolve();

  private constructor(options: ServeOptions) {
    this.#options = options;
    this.#address = options.listen;
    this.#tokenDigest = options.token && digestOf(Buffer.from(options.token).toString('utf8').trim());
    this.#server = new Server({
      'grpc.max_receive_message_length': maxMessageBytes,
      'grpc.max_send_message_length': maxMessageBytes,
    });
    this.#health.addToServer(this.#server);
    this.#server.addService(schedulerService, {
      Engines: (call: Duplex<EngineMessage, EngineCommand>) => {
        const term = this.#admit(call);
        if (term) new EngineStream(call, hostOf(term, term.engineHost));
      },
      Requests: (call: Duplex<RequestMessage, RequestEvent>) => {
        const term = this.#admit(call);
        if (term) new RequestStream(call, hostOf(term, term.clientHost));
      },
      Describe: (call: ServerUnaryCall<object, Description>, done: sendUnaryData<Description>) => {
        const refusal = this.#refusal(call.metadata);
        if (refusal) done(refusal);
        else done(null, this.#describe(this.#term!));
      },
      Explain: (call: ServerUnaryCall<ExplainRequest, Explanation>, done: sendUnaryData<Explanation>) => {
        const refusal = this.#refusal(call.metadata);
        if (refusal) done(refusal);
        else this.#explain(call.request.request ?? '', done);
      },
    });
  }

  /**
   * Listens, and serves as soon as it leads.
   *
   * @throws INVALID_ARGUMENT for options, and for an address beyond this host without a token
   */
  static async open(options: ServeOptions): Promise<SchedulerServer> {
    if (options.token) checkToken(options.token);
    await checkReach(options.listen.host, options.token);
    new LeaseLedger({ ...options.leases, epoch: 1 }, noSink); // what is wrong with the options is said now
    const server = new SchedulerServer(options);
    await server.#listen();
    if (options.membership) server.#membership = options.membership(server.address);
    server.#leading = server.#lead();
    return server;
  }

  get address(): Address {
    return this.#address;
  }

  /** While it leads. */
  get ledger(): LeaseLedger | undefined {
    return this.#term?.ledger;
  }

  async #listen(): Promise<void> {
    const { listen, tls } = this.#options;
    const credentials = tls
      ? ServerCredentials.createSsl(
          tls.ca ?? null,
          [{ private_key: tls.key, cert_chain: tls.cert }],
          tls.ca !== undefined,
        )
      : ServerCredentials.createInsecure();
    const port = await new Promise<number>((resolve, reject) => {
      this.#server.bindAsync(addressText(listen), credentials, (error, bound) => {
        if (error) reject(new DualPathError('INVALID_ARGUMENT', `${addressText(listen)}: ${error.message}`));
        else resolve(bound);
      });
    });
    this.#address = { ...listen, port };
  }

  /** Terms, one after the other, until it is closed. */
  async #lead(): Promise<void> {
    const { signal } = this.#closing;
    while (!signal.aborted) {
      let leadership: Leadership;
      try {
        leadership = await this.#membership.lead(signal);
      } catch (error) {
        if (signal.aborted) return;
        throw error;
      }
      const { leases, observers = [] } = this.#options;
      const tracer = tracerOf();
      const all = [
        ...(leases.observe ? [leases.observe] : []),
        ...observers,
        ...(tracer ? [scheduleSpans(tracer)] : []),
      ];
      const observe = (event: LeaseEvent): void => {
        for (const hear of all) hear(event);
      };
      const { epoch, epochShare = 0 } = leadership;
      const term = new Term({ ...leases, epoch, epochShare, ...(all.length > 0 && { observe }) });
      this.#term = term;
      this.#serving('SERVING');
      this.#options.onLeading?.(epoch);
      await aborted(AbortSignal.any([signal, leadership.lost]));
      this.#term = undefined;
      this.#serving('NOT_SERVING');
      this.#options.onLeading?.(undefined);
      term.end(
        new DualPathError('CLOSED', 'this scheduler does not lead any more; connect to the one that does'),
      );
      await leadership.release();
    }
  }

  #serving(state: 'SERVING' | 'NOT_SERVING'): void {
    this.#health.setStatus('', state);
    this.#health.setStatus(serviceName, state);
  }

  /** The term that a stream belongs to; undefined, and the stream has ended, if it may not begin. */
  #admit(call: Pick<Duplex<never, never>, 'metadata' | 'emit'>): Term | undefined {
    const refusal = this.#refusal(call.metadata);
    if (!refusal) return this.#term;
    call.emit('error', refusal);
    return undefined;
  }

  #refusal(metadata: Metadata): { code: number; details: string; metadata: Metadata } | undefined {
    const trailer = new Metadata();
    if (this.#tokenDigest) {
      const [given = ''] = metadata.get('authorization');
      const token = /^Bearer (.+)$/i.exec(String(given))?.[1];
      if (token === undefined || !timingSafeEqual(digestOf(token.trim()), this.#tokenDigest)) {
        const details =
          token === undefined
            ? 'this scheduler asks for a token, and none came; give the client its token file'
            : 'the token is another than the one of this scheduler; give both the same token file';
        return { code: status.UNAUTHENTICATED, details, metadata: trailer };
      }
    }
    if (this.#term) return undefined;
    const leader = this.#membership.leader();
    if (leader !== undefined) trailer.set('dualpath-leader', leader);
    const details = `this scheduler does not lead${leader === undefined ? '' : `, ${leader} does`}; connect there`;
    return { code: status.UNAVAILABLE, details, metadata: trailer };
  }

  #explain(request: string, done: sendUnaryData<Explanation>): void {
    const decisionsJson = this.#options.explain?.(request);
    if (decisionsJson !== undefined) return done(null, { decisionsJson });
    const details = this.#options.explain
      ? `request '${request}' is not among the latest; its name is client/key`
      : 'this scheduler keeps no decisions; start it with --explain';
    done({ code: status.NOT_FOUND, details });
  }

  #describe({ ledger, epoch, model, maxWaiting }: Term): Description {
    const { waiting, leased } = ledger.statistics();
    return {
      ...{ version: protocolVersions, epoch, model, waiting, leased, maxWaiting },
      blockTokens: this.#options.leases.blockTokens,
      engines: [...ledger.engines()].map(({ presence }) => engineMessage(presence)),
    };
  }

  /** Streams end with UNAVAILABLE: clients go on when there is a scheduler again. Idempotent. */
  async close(): Promise<void> {
    if (!this.#closing.signal.aborted) this.#closing.abort();
    await this.#leading;
    await this.#membership.close();
    // Streams that have ended may take a moment to be closed by their clients.
    const force = setTimeout(() => this.#server.forceShutdown(), 500);
    await new Promise<void>((resolve) => this.#server.tryShutdown(() => resolve()));
    clearTimeout(force);
  }
}

function hostOf<H extends object>(
  term: Term,
  host: H,
): H &
  Pick<Term, 'ledger' | 'epoch' | 'leaseS' | 'model' | 'maxWaiting' | 'maxPayloadBytes'> & { turn(): void } {
  const { ledger, epoch, leaseS, model, maxWaiting, maxPayloadBytes } = term;
  return { ...host, ledger, epoch, leaseS, model, maxWaiting, maxPayloadBytes, turn: () => term.turn() };
}

function digestOf(token: string): Buffer {
  return createHash('sha256').update(token).digest();
}

function superseded(what: string, name: string): DualPathError {
  return new DualPathError('CLOSED', `${what} '${name}' has another stream now`);
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}

const nothing = (): void => undefined;
const noSink: LeaseSink = {
  ...{ assign: nothing, revoke: nothing, resend: nothing, drained: nothing, accepted: nothing },
  ...{ refused: nothing, progress: nothing, tokens: nothing, ended: nothing },
};
