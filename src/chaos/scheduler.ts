import { isDualPathError } from '../errors/index.js';
import { LeaseLedger, type LeaseOptions, type LeaseSink } from '../leases/index.js';
import type { ClientDown, ClientUp, Down, Up } from './messages.js';
import type { Stream } from './network.js';
import type { World } from './world.js';

type EngineStream = Stream<Up, Down>;
type ClientStream = Stream<ClientUp, ClientDown>;

const tickS = 0.05;

/** The service around the real ledger: it can be stopped for a while, restarted, and have its clock leap. */
export class ModelScheduler implements LeaseSink {
  readonly leaseS: number;
  ledger: LeaseLedger | undefined;
  restarts = 0;
  /** Results that came for leases that had ended. */
  lateResults = 0;
  readonly totals = { dropped: 0, returned: 0, adopted: 0, expired: 0, leaps: 0, completed: 0 };
  readonly #world: World;
  readonly #options: Omit<LeaseOptions, 'epoch'>;
  #epoch = 100;
  #clockOffsetS = 1000;
  #pausedUntilS = 0;
  #engines = new Map<string, { stream: EngineStream; received: number; renewed: number }>();
  #clients = new Map<string, ClientStream>();

  constructor(world: World, options: Omit<LeaseOptions, 'epoch'>, leaseS: number) {
    this.#world = world;
    this.#options = options;
    this.leaseS = leaseS;
    this.start();
    const tick = (): void => {
      this.#turn();
      world.after(tickS, tick);
    };
    world.after(tickS, tick);
  }

  start(): void {
    this.ledger = new LeaseLedger({ ...this.#options, epoch: ++this.#epoch }, this);
    this.#at();
  }

  /** The process dies, and with it all that it knew. */
  die(): void {
    this.#tally();
    this.ledger = undefined;
    this.restarts++;
    for (const { stream } of this.#engines.values()) stream.break();
    for (const stream of this.#clients.values()) stream.break();
    this.#engines.clear();
    this.#clients.clear();
  }

  #tally(): void {
    const { dropped, returned, adopted, expiredEngines, clockLeaps, completed } = this.ledger!.statistics();
    this.totals.dropped += Object.values(dropped).reduce((sum, count) => sum + count, 0);
    this.totals.returned += returned;
    this.totals.adopted += adopted;
    this.totals.expired += expiredEngines;
    this.totals.leaps += clockLeaps;
    this.totals.completed += completed;
  }

  end(): void {
    if (this.ledger) this.#tally();
  }

  leap(seconds: number): void {
    this.#clockOffsetS += seconds;
  }

  pause(seconds: number): void {
    this.#pausedUntilS = Math.max(this.#pausedUntilS, this.#world.nowS + seconds);
  }

  #at(): void {
    this.ledger?.at(this.#world.nowS + this.#clockOffsetS);
  }

  #turn(): void {
    if (this.#world.nowS < this.#pausedUntilS) return;
    this.#at();
    this.ledger?.schedule();
  }

  /** Later, if the process is stopped; never, if it has died since. */
  #run(deal: () => void): void {
    const { ledger } = this;
    if (!ledger) return;
    const waitS = this.#pausedUntilS - this.#world.nowS;
    if (waitS > 0) {
      this.#world.after(waitS, () => {
        if (this.ledger === ledger) this.#run(deal);
      });
      return;
    }
    this.#at();
    deal();
    ledger.schedule();
  }

  fromEngine(stream: EngineStream, group: string, message: Up): void {
    if (!this.ledger) stream.break(); // nobody listens
    this.#run(() => {
      if (stream.broken) return;
      const ledger = this.ledger!;
      try {
        if (message.hello) {
          const older = this.#engines.get(group);
          this.#engines.set(group, { stream, received: 0, renewed: 0 });
          older?.stream.break();
          this.#toEngine(group, { welcome: true });
          ledger.hello(message.hello);
        }
        const state = this.#engines.get(group);
        if (state?.stream !== stream) return;
        if (!ledger.heard(group)) {
          stream.break();
          return;
        }
        state.received++;
        state.renewed = message.renewal;
        this.#report(ledger, group, message);
        this.#toEngine(group, {});
      } catch (error) {
        if (!isDualPathError(error)) throw error;
        if (error.code === 'INTERNAL') this.#world.violate(error.message);
        stream.break();
      }
    });
  }

  #report(ledger: LeaseLedger, group: string, { fetch, stage, tokens, failure, lostEngine }: Up): void {
    if (tokens) ledger.tokens(group, tokens.admission, tokens.first, tokens.tokens);
    if (stage?.stage === 'request') this.#result(ledger, group, stage.admission, stage.tokens);
    else if (stage) ledger.stage(group, stage.admission, stage.stage);
    if (failure) ledger.failed(group, failure.engine, failure.admission, failure.error);
    if (lostEngine !== undefined) ledger.engineLost(group, lostEngine);
    if (fetch) ledger.fetch(group, [], 8);
  }

  /** A result counts if its lease is in force; else it is dropped, and counted. */
  #result(ledger: LeaseLedger, group: string, admission: number, tokens: number): void {
    let inForce = false;
    for (const record of ledger.requests()) {
      if (record.assignment?.admission === admission) inForce = record.state === 'leased';
    }
    const before = ledger.statistics();
    ledger.stage(group, admission, 'request', tokens);
    const after = ledger.statistics();
    if (inForce) return;
    this.lateResults++;
    if (after.dropped.result !== before.dropped.result + 1)
      this.#world.violate('a late result was not counted');
    if (after.completed !== before.completed) this.#world.violate('a late result completed a request');
  }

  engineGone(stream: EngineStream, group: string): void {
    this.#run(() => {
      if (this.#engines.get(group)?.stream !== stream) return;
      this.#engines.delete(group);
      this.ledger!.disconnected(group);
    });
  }

  fromClient(stream: ClientStream, client: string, message: ClientUp): void {
    if (!this.ledger) stream.break();
    this.#run(() => {
      if (stream.broken) return;
      const ledger = this.ledger!;
      if (message.hello) {
        const older = this.#clients.get(client);
        this.#clients.set(client, stream);
        older?.break();
        if (older) ledger.detach(client);
        ledger.attach(client);
        stream.toPeer({ welcome: true });
      }
      if (this.#clients.get(client) !== stream) return;
      if (message.submit) ledger.submit(client, message.submit);
      if (message.cancel !== undefined) ledger.cancel(client, message.cancel);
      if (message.acknowledge !== undefined) ledger.acknowledge(client, message.acknowledge);
    });
  }

  clientGone(stream: ClientStream, client: string): void {
    this.#run(() => {
      if (this.#clients.get(client) !== stream) return;
      this.#clients.delete(client);
      this.ledger!.detach(client);
    });
  }

  #toEngine(group: string, message: Omit<Down, 'ack' | 'renewed' | 'epoch'>): void {
    const state = this.#engines.get(group);
    state?.stream.toPeer({ ...message, ack: state.received, renewed: state.renewed, epoch: this.#epoch });
  }

  assign: LeaseSink['assign'] = (group, grant) => this.#toEngine(group, { assign: grant });
  revoke: LeaseSink['revoke'] = (group, admission) => this.#toEngine(group, { revoke: admission });
  resend: LeaseSink['resend'] = (group, admission, first) =>
    this.#toEngine(group, { resend: { admission, first } });
  drained: LeaseSink['drained'] = () => undefined;
  accepted: LeaseSink['accepted'] = () => undefined;
  progress: LeaseSink['progress'] = () => undefined;
  refused: LeaseSink['refused'] = (client, key, error) =>
    void this.#clients.get(client)?.toPeer({ refused: { key, error } });
  tokens: LeaseSink['tokens'] = (client, key, first, tokens) =>
    void this.#clients.get(client)?.toPeer({ tokens: { key, first, tokens } });
  ended: LeaseSink['ended'] = (client, key, outcome) =>
    void this.#clients.get(client)?.toPeer({ ended: { key, outcome } });
}
