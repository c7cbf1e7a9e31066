import { DualPathError } from '../errors/index.js';
import { TokenLog, type HeldLease, type LeaseGrant } from '../leases/index.js';
import type { EngineCapacity, EngineRole, Stage } from '../scheduler/index.js';
import { tokenOf, type Down, type Up } from './messages.js';
import { Stream, type NetworkFaults } from './network.js';
import type { ModelScheduler } from './scheduler.js';
import type { World } from './world.js';

interface ModelLease {
  readonly engine: ModelEngine;
  readonly grant: LeaseGrant;
  readonly done: Set<Stage>;
  readonly log: TokenLog;
  failure: DualPathError | undefined;
  over: boolean;
  /** The message that told of its end, on the present stream. */
  toldIn: number;
}

interface ModelEngine {
  readonly capacity: EngineCapacity;
  incarnation: number;
  alive: boolean;
}

/** All groups: who has prefilled what, and who believes to hold what. */
export class ModelCluster {
  readonly groups: ModelGroup[] = [];
  readonly prefilled = new Set<number>();

  /** No two leases of one request that their engines believe in. */
  check(world: World): void {
    const believed = new Map<string, number>();
    for (const group of this.groups) {
      for (const { grant, over, failure } of group.believed()) {
        const { request, admission } = grant.assignment;
        if (over || failure) continue;
        const other = believed.get(request);
        if (other !== undefined && other !== admission) {
          world.violate(`${request} is leased twice: ${other} and ${admission}`);
        }
        believed.set(request, admission);
      }
    }
  }
}

/** A group with its leader: engines that work, die and come back; the protocol as docs/control-plane.md has it. */
export class ModelGroup {
  readonly name: string;
  readonly role: EngineRole;
  readonly engines: ModelEngine[];
  readonly #world: World;
  readonly #faults: NetworkFaults;
  readonly #scheduler: ModelScheduler;
  readonly #cluster: ModelCluster;
  readonly #leases = new Map<number, ModelLease>();
  /** The longest that it works on something before it says so. */
  readonly #stepS: number;
  #stream: Stream<Up, Down> | undefined;
  #welcomed = false;
  #epoch = 0;
  #renewal = 0;
  #renewals: { readonly number: number; readonly atS: number }[] = [];
  #unsaid: Omit<Up, 'renewal'>[] = [];
  #renewedS: number;
  #pausedUntilS = 0;

  constructor(
    world: World,
    faults: NetworkFaults,
    scheduler: ModelScheduler,
    cluster: ModelCluster,
    engines: readonly EngineCapacity[],
  ) {
    this.#world = world;
    this.#faults = faults;
    this.#scheduler = scheduler;
    this.#cluster = cluster;
    this.name = engines[0]!.group;
    this.role = engines[0]!.role;
    this.engines = engines.map((capacity) => ({ capacity, incarnation: 1, alive: true }));
    this.#renewedS = world.nowS;
    this.#stepS = world.pick([0.05, 0.15, 1])!;
    cluster.groups.push(this);
    this.#connect();
    this.#beat();
  }

  *believed(): Iterable<ModelLease> {
    if (this.#world.nowS - this.#renewedS > this.#scheduler.leaseS) return;
    for (const lease of this.#leases.values()) if (lease.engine.alive) yield lease;
  }

  /** The process of an engine ends; the leader's takes the stream with it. */
  kill(index: number, forS: number): void {
    const engine = this.engines[index];
    if (!engine?.alive) return;
    engine.alive = false;
    for (const [admission, lease] of this.#leases)
      if (lease.engine === engine) this.#leases.delete(admission);
    if (index === 0) this.#stream?.break();
    else if (this.#world.chance(0.5)) this.#say({ lostEngine: engine.capacity.engine });
    this.#world.after(forS, () => {
      engine.alive = true;
      engine.incarnation++;
      this.#stream?.break(); // the next hello names the new incarnation
    });
  }

  killAll(forS: number): void {
    for (let i = 0; i < this.engines.length; i++) this.kill(i, forS);
  }

  /** SIGSTOP. */
  pause(seconds: number): void {
    this.#pausedUntilS = Math.max(this.#pausedUntilS, this.#world.nowS + seconds);
  }

  disconnect(): void {
    this.#stream?.break();
  }

  #connect(): void {
    const engines = this.engines.filter(({ alive }) => alive);
    if (engines.length === 0) {
      this.#world.after(0.2, () => this.#connect());
      return;
    }
    const stream: Stream<Up, Down> = new Stream(
      this.#world,
      this.#faults,
      {
        take: (message: Up) => this.#scheduler.fromEngine(stream, this.name, message),
        broken: () => this.#scheduler.engineGone(stream, this.name),
      },
      {
        take: (message: Down) => this.#unlessPaused(() => this.#take(stream, message)),
        broken: () => this.#lost(stream),
      },
    );
    this.#stream = stream;
    this.#welcomed = false;
    this.#renewals = [];
    this.#unsaid = [];
    const held: HeldLease[] = [];
    for (const lease of this.#leases.values()) {
      const { engine, grant, done, failure } = lease;
      const { assignment, promptTokens, hitTokens, maxNewTokens, attempt } = grant;
      const stages = [...done].filter((stage) => stage !== 'request');
      lease.toldIn = lease.over && !done.has('request') ? 1 : Infinity;
      held.push({
        ...{ engine: engine.capacity.engine, assignment, promptTokens, hitTokens, maxNewTokens, attempt },
        ...{ done: stages, failure },
      });
    }
    const presences = engines.map(({ capacity, incarnation }) => ({ capacity, incarnation, addresses: {} }));
    const hello = { group: this.name, model: 'model', engines: presences, held };
    stream.toScheduler({ hello, renewal: this.#renew() });
    // What was lost on the way is not answered.
    this.#world.after(2, () => {
      if (this.#stream === stream && !this.#welcomed) stream.break();
    });
  }

  #lost(stream: Stream<Up, Down>): void {
    if (this.#stream !== stream) return;
    this.#stream = undefined;
    this.#welcomed = false;
    this.#world.after(this.#world.between(0.02, 0.3), () => this.#connect());
  }

  #renew(): number {
    this.#renewals.push({ number: ++this.#renewal, atS: this.#world.nowS });
    return this.#renewal;
  }

  #say(message: Omit<Up, 'renewal'>): number {
    if (this.#welcomed && this.#stream)
      return this.#stream.toScheduler({ ...message, renewal: this.#renew() });
    this.#unsaid.push(message); // since the hello
    return Infinity;
  }

  #sayAgain(message: Omit<Up, 'renewal'>): void {
    const number = this.#say(message);
    const lease = this.#leases.get(message.stage?.admission ?? message.failure?.admission ?? 0);
    if (lease?.over === true && lease.toldIn === Infinity) lease.toldIn = number;
  }

  #unlessPaused(run: () => void): void {
    const waitS = this.#pausedUntilS - this.#world.nowS;
    if (waitS > 0) this.#world.after(waitS, () => this.#unlessPaused(run));
    else if (!this.#fenced()) run();
  }

  #beat(): void {
    this.#unlessPaused(() => this.#say({ fetch: true }));
    this.#world.after(this.#scheduler.leaseS / 5, () => this.#beat());
  }

  /** Its leases may be others' now: it begins anew. */
  #fenced(): boolean {
    if (this.#world.nowS - this.#renewedS <= this.#scheduler.leaseS) return false;
    if (this.#leases.size > 0) {
      this.#leases.clear();
      for (const engine of this.engines) engine.incarnation++;
      this.#stream?.break();
    }
    return this.#leases.size > 0;
  }

  #take(stream: Stream<Up, Down>, message: Down): void {
    if (this.#stream !== stream || stream.broken || message.epoch < this.#epoch) return;
    this.#epoch = message.epoch;
    while (this.#renewals.length > 0 && this.#renewals[0]!.number <= message.renewed) {
      this.#renewedS = Math.max(this.#renewedS, this.#renewals.shift()!.atS);
    }
    for (const [admission, { toldIn }] of this.#leases)
      if (toldIn <= message.ack) this.#leases.delete(admission);
    if (message.welcome) {
      this.#welcomed = true;
      for (const unsaid of this.#unsaid.splice(0)) this.#sayAgain(unsaid);
      for (const lease of this.#leases.values()) if (!lease.failure) this.#again(lease, 0);
      this.#say({ fetch: true });
    }
    if (message.assign) this.#assigned(message.assign);
    if (message.revoke !== undefined) this.#revoked(message.revoke);
    if (message.resend) {
      const lease = this.#leases.get(message.resend.admission);
      if (lease) this.#again(lease, message.resend.first);
    }
    this.#cluster.check(this.#world);
  }

  #again(lease: ModelLease, first: number): void {
    const { admission } = lease.grant.assignment;
    if (lease.log.count > first) this.#say({ tokens: { admission, first, tokens: lease.log.from(first) } });
    if (lease.done.has('request')) this.#done(lease, 'request');
  }

  #done(lease: ModelLease, stage: Stage): void {
    const { admission } = lease.grant.assignment;
    lease.done.add(stage);
    lease.over ||= stage === 'request' || stage === 'prefill';
    const number = this.#say({ stage: { admission, stage, tokens: lease.log.count } });
    if (lease.over) lease.toldIn = number;
  }

  #fail(lease: ModelLease, error: DualPathError): void {
    if (lease.over || !lease.engine.alive) return;
    lease.over = true;
    lease.failure = error;
    const [engine, { admission }] = [lease.engine.capacity.engine, lease.grant.assignment];
    lease.toldIn = this.#say({ failure: { engine, admission, error } });
  }

  #assigned(grant: LeaseGrant): void {
    const { prefillEngine, decodeEngine, admission } = grant.assignment;
    const engine = this.engines.find(
      ({ capacity: { engine: name } }) => name === prefillEngine || name === decodeEngine,
    );
    if (!engine?.alive || this.#leases.has(admission)) return;
    const log = new TokenLog();
    log.append(0, grant.resumeTokens);
    const lease = {
      engine,
      grant,
      done: new Set<Stage>(),
      log,
      failure: undefined,
      over: false,
      toldIn: Infinity,
    };
    this.#leases.set(admission, lease);
    this.#work(lease);
  }

  #revoked(admission: number): void {
    const lease = this.#leases.get(admission);
    if (!lease || lease.over) return;
    const error = new DualPathError('PEER_LOST', 'it was taken back');
    this.#world.after(this.#world.between(0, 0.1), () => this.#unlessPaused(() => this.#fail(lease, error)));
  }

  /** Its next step, a little later, if it is still its. */
  #step(lease: ModelLease, step: () => void): void {
    this.#world.after(this.#world.between(0.005, this.#stepS), () =>
      this.#unlessPaused(() => {
        if (this.#leases.get(lease.grant.assignment.admission) === lease && !lease.over) step();
      }),
    );
  }

  #work(lease: ModelLease): void {
    if (this.role === 'decode') this.#decode(lease);
    else {
      this.#step(lease, () => {
        if (this.#world.chance(0.03)) {
          this.#fail(lease, new DualPathError('RDMA_FAILED', 'the connection between two engines broke'));
          return;
        }
        this.#cluster.prefilled.add(lease.grant.assignment.admission);
        this.#done(lease, 'prefill-read');
        this.#done(lease, 'prefill');
      });
    }
  }

  #decode(lease: ModelLease): void {
    const { request, admission } = lease.grant.assignment;
    this.#step(lease, () => {
      if (this.#cluster.prefilled.has(admission)) {
        if (!lease.done.has('decode-buffer')) this.#done(lease, 'decode-buffer');
        const first = lease.log.count;
        const count = Math.min(this.#world.whole(1, 3), lease.grant.maxNewTokens - first);
        const tokens = Uint32Array.from({ length: count }, (_, i) => tokenOf(request, first + i));
        lease.log.append(first, tokens);
        if (count > 0) this.#say({ tokens: { admission, first, tokens } });
        if (lease.log.count === lease.grant.maxNewTokens) {
          this.#done(lease, 'request');
          return;
        }
      }
      this.#decode(lease);
    });
  }
}
