/** A replay's cluster of engine processes, on this host or others: the scheduler and the prompts are here. */
import { basename } from 'node:path';
import { threadId } from 'node:worker_threads';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import type { Rpc } from '../control/index.js';
import { type Address, type ControlNode } from '../control/index.js';
import { DualPathError, isDualPathError } from '../errors/index.js';
import { decodeSpareBlocks, modePlans } from '../replay/index.js';
import type {
  ClusterEvents,
  ClusterOptions,
  ClusterTotals,
  OpenCluster,
  ReplayCluster,
  ReplayMode,
} from '../replay/index.js';
import { LocalScheduler, type EngineCapacity, type RequestFailure } from '../scheduler/index.js';
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
  type EngineDescription,
  type EngineJob,
} from './protocol.js';
import { mergeTotals } from './remote-totals.js';

export interface RemoteEngine extends EngineDescription {
  readonly address: Address;
}

export interface RemoteSettings {
  readonly timeModel: EngineJob['timeModel'];
  readonly canaries: boolean;
}

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

  /** @param rpc of the node, which is given to it alone */
  constructor(node: ControlNode, rpc: Rpc, engines: readonly RemoteEngine[], settings: RemoteSettings) {
    this.engines = engines;
    this.#node = node;
    this.#rpc = rpc;
    this.#settings = settings;
    const current = (): RemoteCluster | undefined => this.#cluster;
    rpc.serve('fetch', fetchSchema, async (_, { group, loads }, signal) => {
      // Engines ask as soon as they are open, which others may not be yet.
      const cluster = await this.#opening;
      if (cluster === undefined || cluster !== current()) throw new DualPathError('CLOSED', 'no replay runs');
      return await cluster.scheduler.fetch(group, loads, signal);
    });
    rpc.serve('prompt', promptSchema, async (engine, { request }) => {
      await node.writable(engine);
      const events = current()?.events;
      if (events === undefined) throw new DualPathError('CLOSED', 'no replay runs');
      return { prompt: await events.prompts.prompt(request), reply: events.reply(request) };
    });
    rpc.on('complete', completeSchema, (_, { request, stage, admission }) =>
      current()?.scheduler.complete(request, stage, admission ?? undefined),
    );
    rpc.on('fail', failSchema, (engine, { request, code, message, admission }) =>
      current()?.failed(engine, request, new DualPathError(code, message), admission ?? undefined),
    );
    rpc.on('prefilled', prefilledSchema, (_, { request }) =>
      current()?.events.prefilled(request, Number(process.hrtime.bigint() / 1000n)),
    );
    rpc.on('ended', endedSchema, (_, { request, persistError }) => {
      const error =
        persistError === null ? undefined : new DualPathError(persistError.code, persistError.message);
      current()?.events.ended(request, error);
    });
    rpc.on('device-failed', deviceFailedSchema, (_, { code, message }) =>
      current()?.events.stopped(new DualPathError(code, message)),
    );
    node.listen({ lost: (engine, error) => current()?.lost(engine, error) });
  }

  /** A run of every engine. */
  readonly open: OpenCluster = (options, mode, lanes, events) => {
    const opening = this.#open(options, mode, lanes, events);
    this.#opening = opening.catch(() => undefined);
    return opening;
  };

  async #open(
    options: ClusterOptions,
    mode: ReplayMode,
    lanes: number,
    events: ClusterEvents,
  ): Promise<RemoteCluster> {
    const store = BlockStore.open({ path: options.storePath, layout: options.layout });
    const opened: { readonly engine: RemoteEngine; readonly sizes: z.infer<typeof openedSchema> }[] = [];
    const reachable = this.engines.filter(({ name }) => this.#node.knows(name));
    try {
      await Promise.all(
        reachable.map(async (engine) => {
          const job = jobOf(engine, reachable, options, mode, lanes, this.#settings);
          opened.push({ engine, sizes: await this.#rpc.call(engine.name, 'open', job, openedSchema) });
        }),
      );
    } catch (error) {
      await closeAll(
        this.#rpc,
        opened.map(({ engine }) => engine.name),
      );
      throw error;
    }
    const capacities = opened.map(({ engine: { name, role }, sizes }): EngineCapacity => {
      const node = `${role}-node-${name}`;
      const hbmBlocks = role === 'prefill' ? 0 : sizes.hbmBlocks;
      // Only the relation of rates counts: equal where the hosts' own storage sets the pace.
      const readRateBytesPerS = options.snicBytesPerS || 1e9;
      return {
        engine: name,
        node,
        group: name,
        role,
        bufferBlocks: sizes.bufferBlocks,
        hbmBlocks,
        readRateBytesPerS,
      };
    });
    this.#cluster = new RemoteCluster(this.#rpc, store, options, mode, capacities, events, () => {
      this.#cluster = undefined;
    });
    return this.#cluster;
  }
}

let clusters = 0;

class RemoteCluster implements ReplayCluster {
  readonly store: BlockStore;
  readonly scheduler: LocalScheduler;
  readonly front: TrafficManager;
  readonly events: ClusterEvents;
  readonly #rpc: Rpc;
  readonly #engines: readonly EngineCapacity[];
  readonly #lost = new Set<string>();
  readonly #onClose: () => void;

  constructor(
    rpc: Rpc,
    store: BlockStore,
    options: ClusterOptions,
    mode: ReplayMode,
    engines: readonly EngineCapacity[],
    events: ClusterEvents,
    onClose: () => void,
  ) {
    this.#rpc = rpc;
    this.store = store;
    this.events = events;
    this.#engines = engines;
    this.#onClose = onClose;
    this.front = new TrafficManager({
      name: 'front',
      network: `remote-${threadId}-${++clusters}`,
      layout: store.layout,
      store,
      bufferBlocks: 1,
    });
    this.scheduler = new LocalScheduler(
      {
        engines,
        policy: modePlans[mode].policy,
        blockTokens: store.layout.blockTokens,
        blockBytes: store.file.fileBytes,
        decodeSpareBlocks,
        maxWaiting: 65_536,
        seed: options.seed,
        decisions: options.decisions,
      },
      (failure) => {
        this.#cancel(failure);
        events.failed(failure);
      },
      (failure) => {
        this.#cancel(failure);
        events.retried(failure);
      },
    );
  }

  failed(engine: string, request: string, error: DualPathError, admission: number | undefined): void {
    this.scheduler.fail(request, error, admission);
    const { role } = this.#engines.find(({ engine: name }) => name === engine) ?? {};
    if (role === 'prefill') this.events.prefillFailed(request);
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
    if (this.#lost.has(engine) || !this.#engines.some(({ engine: name }) => name === engine)) return;
    this.#lost.add(engine);
    this.scheduler.engineLost(engine);
    for (const role of ['prefill', 'decode'] as const) {
      const left = this.#engines.some((one) => one.role === role && !this.#lost.has(one.engine));
      if (!left) this.events.stopped(error);
    }
  }

  async totals(): Promise<ClusterTotals> {
    const live = this.#engines.filter(({ engine }) => !this.#lost.has(engine));
    const totals = await Promise.all(
      live.map(async ({ engine, node, role }) => ({
        ...{ engine, node, role },
        totals: await this.#rpc.call(engine, 'totals', null, totalsSchema),
      })),
    );
    return mergeTotals(totals);
  }

  async close(): Promise<void> {
    this.scheduler.close();
    await closeAll(
      this.#rpc,
      this.#engines.map(({ engine }) => engine).filter((engine) => !this.#lost.has(engine)),
    );
    this.#onClose();
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

function jobOf(
  engine: RemoteEngine,
  engines: readonly RemoteEngine[],
  options: ClusterOptions,
  mode: ReplayMode,
  lanes: number,
  { timeModel, canaries }: RemoteSettings,
): EngineJob {
  const { layerwise, freeHits } = modePlans[mode];
  const prefill = engine.role === 'prefill';
  return {
    store: basename(options.storePath),
    bufferBytes: prefill ? options.prefillBufferBytes : options.decodeBufferBytes,
    hbmBytes: prefill ? options.prefillHbmBytes : options.decodeHbmBytes,
    windowLayers: options.windowLayers,
    ...{ layerwise, freeHits, lanes, timeModel, canaries },
    quotaS: options.quotaS,
    decodeStepS: options.decodeStepS,
    snicBytesPerS: options.snicBytesPerS,
    cnicBytesPerS: options.cnicBytesPerS,
    peers: engines.filter(({ role }) => role !== engine.role).map(({ name, address }) => ({ name, address })),
  };
}
