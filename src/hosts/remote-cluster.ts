/** A replay's cluster of engine processes, on this host or others: the scheduler and the prompts are here. */
import { threadId } from 'node:worker_threads';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import type { Rpc } from '../control/index.js';
import { type Address, type ControlNode } from '../control/index.js';
import { DualPathError, isDualPathError } from '../errors/index.js';
import { modePlans } from '../replay/index.js';
import type {
  ClusterEvents,
  ClusterOptions,
  ClusterTotals,
  OpenCluster,
  ReplayCluster,
  ReplayMode,
} from '../replay/index.js';
import type {
  EngineCapacity,
  RequestDescription,
  RequestFailure,
  LocalScheduler,
} from '../scheduler/index.js';
import { BlockStore } from '../storage/index.js';
import { TrafficManager } from '../traffic/index.js';
import {
  completeSchema,
  describeSchema,
  deviceFailedSchema,
  endedSchema,
  failSchema,
  fetchSchema,
  openedSchema,
  prefilledSchema,
  promptSchema,
  totalsSchema,
  type EngineJob,
} from './protocol.js';
import { capacityOf } from './capacity.js';
import { mergeTotals } from './remote-totals.js';
import { admissionOf, jobOf, type RemoteEngine, type RemoteSettings } from './run-job.js';
import { OwnScheduler, ServedScheduler, type RunScheduler } from './run-scheduler.js';

/** The engines at these addresses. @throws PEER_LOST, INVALID_ARGUMENT, UNAUTHENTICATED */
export async function findEngines(
  node: ControlNode,
  rpc: Rpc,
  addresses: readonly Address[],
): Promise<RemoteEngine[]> {
  const engines = await Promise.all(
    addresses.map(async (address) => {
      const name = await node.connect(address);
      return { ...(await rpc.call(name, 'describe', null, describeSchema)), address };
    }),
  );
  for (const role of ['prefill', 'decode'] as const) {
    if (engines.some((engine) => engine.role === role)) continue;
    const names = engines.map(({ name, role: has }) => `${name} (${has})`).join(', ');
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `none of the engines is a ${role} engine: ${names}; name one`,
    );
  }
  return engines;
}

/** Reaches every engine; their runs come and go with open(). */
export class RemoteEngines {
  readonly engines: readonly RemoteEngine[];
  readonly #node: ControlNode;
  readonly #rpc: Rpc;
  readonly #settings: RemoteSettings;
  #cluster: RemoteCluster | undefined;
  #opening: Promise<RemoteCluster | undefined> = Promise.resolve(undefined);
  readonly #lostSinceOpen = new Map<string, DualPathError>();
  #jobOf: ((engine: RemoteEngine) => EngineJob) | undefined;

  /** @param rpc of the node, which is given to it alone */
  constructor(node: ControlNode, rpc: Rpc, engines: readonly RemoteEngine[], settings: RemoteSettings) {
    this.engines = engines;
    this.#node = node;
    this.#rpc = rpc;
    this.#settings = settings;
    const current = (): RemoteCluster | undefined => this.#cluster;
    // An engine that was given up may live, and not know of it yet: what it says of the run no longer counts.
    const runOf = (engine: string): RemoteCluster | undefined =>
      this.#cluster?.runs(engine) === true ? this.#cluster : undefined;
    rpc.serve('fetch', fetchSchema, async (engine, { group, loads }, signal) => {
      // Engines ask as soon as they are open, which others may not be yet.
      const cluster = await this.#opening;
      if (cluster === undefined || cluster !== runOf(engine)) {
        throw new DualPathError('CLOSED', `no replay runs engine '${engine}'`);
      }
      return await cluster.own.fetch(group, loads, signal);
    });
    rpc.serve('prompt', promptSchema, async (engine, { request }) => {
      await node.writable(engine);
      const cluster = current();
      if (cluster === undefined) throw new DualPathError('CLOSED', 'no replay runs');
      const own = cluster.requests.nameOf(request);
      const { prompts, reply } = cluster.events;
      return { prompt: await prompts.prompt(own), reply: reply(own) };
    });
    rpc.on('complete', completeSchema, (engine, { request, stage, admission }) =>
      runOf(engine)?.own.complete(engine, request, stage, admission ?? undefined),
    );
    rpc.on('fail', failSchema, (engine, { request, code, message, admission }) =>
      runOf(engine)?.failed(engine, request, new DualPathError(code, message), admission ?? undefined),
    );
    rpc.on('prefilled', prefilledSchema, (_, { request }) => {
      const requests = current()?.requests;
      requests?.prefilled(requests.nameOf(request), Number(process.hrtime.bigint() / 1000n));
    });
    rpc.on('ended', endedSchema, (_, { request, persistError }) => {
      const error =
        persistError === null ? undefined : new DualPathError(persistError.code, persistError.message);
      const requests = current()?.requests;
      requests?.ended(requests.nameOf(request), error);
    });
    rpc.on('device-failed', deviceFailedSchema, (engine, { code, message }) =>
      runOf(engine)?.events.stopped(new DualPathError(code, message)),
    );
    node.listen({
      lost: (engine, error) => {
        this.#lostSinceOpen.set(engine, error);
        current()?.lost(engine, error);
      },
    });
  }

  /** A run of every engine that lives to see it. */
  readonly open: OpenCluster = (options, mode, lanes, events) => {
    const opening = this.#open(options, mode, lanes, events);
    this.#opening = opening.catch(() => undefined);
    return opening;
  };

  /** An engine was started anew under its name, at this address: it goes on in the run under way, where `serve` schedules. */
  async rejoin(name: string, address: Address): Promise<void> {
    this.#node.disconnect(name); // the session with the process that had the name before, which it ends untold
    this.#cluster?.requests.engineLost(name);
    await this.#node.connect(address);
    const engine = this.engines.find((one) => one.name === name);
    if (engine === undefined || this.#jobOf === undefined || this.#cluster === undefined) return;
    const capacity = await this.#openOne(engine, this.#jobOf({ ...engine, address }));
    this.#cluster?.found(capacity);
  }

  async #open(
    options: ClusterOptions,
    mode: ReplayMode,
    lanes: number,
    events: ClusterEvents,
  ): Promise<RemoteCluster> {
    const store = await BlockStore.openAsync({ path: options.storePath, layout: options.layout });
    const served = await this.#settings.serve?.(modePlans[mode].policy, options.seed);
    const reachable = this.engines.filter(({ name }) => this.#node.knows(name));
    const job = (engine: RemoteEngine): EngineJob =>
      jobOf(engine, reachable, options, mode, lanes, this.#settings, served);
    this.#jobOf = job;
    let capacities: EngineCapacity[];
    try {
      capacities = await this.#openEach(reachable, job);
    } catch (error) {
      await served?.close();
      throw error as Error;
    }
    const requests = (cancel: (failure: RequestFailure) => void): RunScheduler =>
      served === undefined
        ? new OwnScheduler(admissionOf(store, options, mode, capacities), events, cancel)
        : new ServedScheduler(
            { endpoints: [served.endpoint], model: options.layout.model.name, ...tokenOf(this.#settings) },
            events,
          );
    const asked = this.engines.map(({ name }) => name);
    this.#cluster = new RemoteCluster(this.#rpc, store, asked, capacities, events, requests, async () => {
      this.#cluster = undefined;
      await served?.close();
    });
    return this.#cluster;
  }

  /** The run begins without engines that are lost meanwhile, as it would go on without them later. */
  async #openEach(
    engines: readonly RemoteEngine[],
    job: (engine: RemoteEngine) => EngineJob,
  ): Promise<EngineCapacity[]> {
    const lost = this.#lostSinceOpen;
    lost.clear();
    // All of them, so that none is still at it when those that were opened are closed.
    const outcomes = await Promise.allSettled(engines.map((engine) => this.#openOne(engine, job(engine))));
    const opened = outcomes.flatMap((outcome) => (outcome.status === 'fulfilled' ? [outcome.value] : []));
    const live = opened.filter(({ engine }) => !lost.has(engine));
    for (const [i, { name, role }] of engines.entries()) {
      const outcome = outcomes[i]!;
      // One that lives and could not be opened, though it be for want of another engine, is not left out.
      const error: unknown = lost.get(name) ?? (outcome.status === 'rejected' ? outcome.reason : undefined);
      if (error === undefined || (lost.has(name) && live.some((one) => one.role === role))) continue;
      await closeAll(
        this.#rpc,
        opened.map(({ engine }) => engine),
      );
      throw error as Error;
    }
    return live;
  }

  async #openOne({ name, role }: RemoteEngine, job: EngineJob): Promise<EngineCapacity> {
    const sizes = await this.#rpc.call(name, 'open', job, openedSchema);
    return capacityOf(name, role, sizes, job.snicBytesPerS);
  }
}

let clusters = 0;

class RemoteCluster implements ReplayCluster {
  readonly store: BlockStore;
  readonly requests: RunScheduler;
  readonly front: TrafficManager;
  readonly events: ClusterEvents;
  readonly #rpc: Rpc;
  /** Names of all that were to be there. */
  readonly #asked: readonly string[];
  readonly #engines: EngineCapacity[];
  readonly #lost = new Set<string>();
  readonly #onClose: () => Promise<void>;

  constructor(
    rpc: Rpc,
    store: BlockStore,
    asked: readonly string[],
    engines: readonly EngineCapacity[],
    events: ClusterEvents,
    requests: (cancel: (failure: RequestFailure) => void) => RunScheduler,
    onClose: () => Promise<void>,
  ) {
    this.#rpc = rpc;
    this.store = store;
    this.events = events;
    this.#asked = asked;
    this.#engines = [...engines];
    this.#onClose = onClose;
    this.front = new TrafficManager({
      name: 'front',
      network: `remote-${threadId}-${++clusters}`,
      layout: store.layout,
      store,
      bufferBlocks: 1,
    });
    this.requests = requests((failure) => this.#cancel(failure));
  }

  idOf(request: string): string {
    return this.requests.idOf(request);
  }

  get scheduler(): LocalScheduler | undefined {
    return this.requests.local;
  }

  /** For engines that ask this process. @throws CLOSED when another one schedules */
  get own(): OwnScheduler {
    if (this.requests instanceof OwnScheduler) return this.requests;
    throw new DualPathError('CLOSED', 'requests of this replay are scheduled by another process');
  }

  submit(request: RequestDescription): Promise<void> {
    return this.requests.submit(request);
  }

  failed(engine: string, request: string, error: DualPathError, admission: number | undefined): void {
    const { role } = this.#engines.find(({ engine: name }) => name === engine) ?? {};
    this.own.fail(request, error, admission, role === 'prefill');
  }

  /** Ends a request at both its engines. */
  #cancel({ request, error, assignment }: RequestFailure): void {
    if (assignment === undefined) return;
    const code = isDualPathError(error) ? error.code : 'INTERNAL';
    const { admission, prefillEngine, decodeEngine } = assignment;
    for (const engine of [prefillEngine, decodeEngine]) {
      if (this.#lost.has(engine)) continue;
      this.#rpc.emit(engine, 'cancel', { request, admission, code, message: error.message });
    }
  }

  lost(engine: string, error: DualPathError): void {
    if (!this.runs(engine)) return;
    this.#lost.add(engine);
    this.requests.engineLost(engine);
    for (const role of ['prefill', 'decode'] as const) {
      const left = this.#engines.some((one) => one.role === role && !this.#lost.has(one.engine));
      if (!left) this.events.stopped(error);
    }
  }

  /** Whether it is one of the run's engines, and not lost. */
  runs(engine: string): boolean {
    return !this.#lost.has(engine) && this.#engines.some(({ engine: name }) => name === engine);
  }

  /** It is there again, or for the first time. */
  found(engine: EngineCapacity): void {
    if (!this.#engines.some(({ engine: name }) => name === engine.engine)) this.#engines.push(engine);
    this.#lost.delete(engine.engine);
  }

  async totals(): Promise<ClusterTotals> {
    const live = this.#engines.filter(({ engine }) => !this.#lost.has(engine));
    const totals = await Promise.all(
      live.map(async ({ engine, node, role }) => {
        try {
          return { engine, node, role, totals: await this.#rpc.call(engine, 'totals', null, totalsSchema) };
        } catch (error) {
          // It died with the last turns, and what it counted with it, as of one that was lost before.
          if (isDualPathError(error, 'PEER_LOST')) return undefined;
          throw error;
        }
      }),
    );
    const counted = totals.filter((one) => one !== undefined);
    const lost = this.#asked.filter((name) => !counted.some(({ engine }) => engine === name));
    return mergeTotals(counted, lost);
  }

  async close(): Promise<void> {
    await this.requests.close();
    await closeAll(
      this.#rpc,
      this.#engines.map(({ engine }) => engine).filter((engine) => !this.#lost.has(engine)),
    );
    await this.#onClose();
    await this.front.close();
  }
}

/** An engine that cannot answer ends its run by itself when it finds its driver lost. */
const closeLimitMs = 60_000;

async function closeAll(rpc: Rpc, engines: readonly string[]): Promise<void> {
  const late = new AbortController();
  const closing = Promise.allSettled(
    engines.map((engine) => rpc.call(engine, 'close', null, z.null(), late.signal)),
  );
  const limit = sleep(closeLimitMs, undefined, { ref: false, signal: late.signal }).catch(() => undefined);
  await Promise.race([closing, limit]);
  late.abort();
}

function tokenOf({ token }: RemoteSettings): { readonly token?: Uint8Array } {
  return token === undefined ? {} : { token };
}
