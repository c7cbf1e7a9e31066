/** A scheduler's service on a free port of this host, engines that do nothing but say so, and front ends. */
import type { DualPathError } from '../../src/errors/index.js';
import type { LeaseEvent } from '../../src/leases/index.js';
import type { Assignment, EngineCapacity, EngineRole, SchedulerClient } from '../../src/scheduler/index.js';
import { EngineClient, RequestClient, type EngineClientOptions } from '../../src/scheduler-client/index.js';
import { SchedulerServer, type ServeOptions } from '../../src/serve/index.js';

export const model = 'tiny';
export const local = { host: '127.0.0.1', port: 0 };

export function capacityOf(
  role: EngineRole,
  name: string,
  changes: Partial<EngineCapacity> = {},
): EngineCapacity {
  return {
    engine: name,
    node: `node-${name}`,
    group: name,
    role,
    bufferBlocks: 100,
    hbmBlocks: role === 'prefill' ? 0 : 200,
    readRateBytesPerS: 1e9,
    ...changes,
  };
}

export async function openServer(
  leases: Partial<ServeOptions['leases']> = {},
  options: Partial<ServeOptions> = {},
): Promise<SchedulerServer> {
  return SchedulerServer.open({
    listen: local,
    ...options,
    leases: {
      model,
      policy: 'shorter-queue',
      blockTokens: 4,
      blockBytes: 400,
      decodeSpareBlocks: 1,
      seed: 1,
      leaseS: 1,
      graceS: 0,
      ...leases,
    },
  });
}

export const endpointOf = ({ address }: SchedulerServer): string => `${address.host}:${address.port}`;

/** An engine of a group of its own that runs each request at once: `tokens` of them, or until it is told to stop. */
export class FakeEngine {
  readonly client: EngineClient;
  readonly taken: Assignment[] = [];
  readonly notices: DualPathError[] = [];
  readonly #capacity: EngineCapacity;
  readonly #scheduler: SchedulerClient;
  readonly #stop = new AbortController();
  readonly #loop: Promise<void>;
  /** Does nothing with what it is given. */
  idle = false;
  tokens = 3;

  constructor(
    role: EngineRole,
    name: string,
    endpoints: readonly string[],
    more: Partial<EngineClientOptions> = {},
    wrap: (client: EngineClient) => SchedulerClient = (client) => client,
  ) {
    this.#capacity = capacityOf(role, name);
    this.client = new EngineClient({
      endpoints,
      model,
      group: name,
      engines: [{ capacity: this.#capacity, addresses: { control: `${name}:7001` } }],
      onRevoked: (request, error, admission) => this.client.fail(request, error, admission),
      onNotice: (error) => this.notices.push(error),
      ...more,
    });
    this.#scheduler = wrap(this.client);
    this.#loop = this.#run().catch(() => undefined);
  }

  async #run(): Promise<void> {
    const { engine, group } = this.#capacity;
    for (let sequence = 1; ; sequence++) {
      const load = { engine, sequence, unfinishedRequests: 0, unfinishedTokens: 0, nodeReadQueueBlocks: 0 };
      for (const assignment of await this.#scheduler.fetch(group, [load], this.#stop.signal))
        this.serve(assignment);
    }
  }

  serve(assignment: Assignment): void {
    this.taken.push(assignment);
    if (!this.idle) this.finish(assignment);
  }

  finish({ request, admission }: Assignment): void {
    const { client } = this;
    const scheduler = this.#scheduler;
    if (this.#capacity.role === 'prefill') {
      scheduler.complete(request, 'prefill-read', admission);
      scheduler.complete(request, 'prefill', admission);
      return;
    }
    scheduler.complete(request, 'decode-read', admission);
    scheduler.complete(request, 'decode-buffer', admission);
    const { resumeTokens } = client.details(admission)!;
    const tokens = Uint32Array.from({ length: this.tokens }, (_, i) => 100 + i);
    client.tokens(admission, resumeTokens.length, tokens.subarray(resumeTokens.length));
    scheduler.complete(request, 'request', admission);
  }

  async close(): Promise<void> {
    this.#stop.abort();
    await this.#loop;
    await this.client.close();
  }
}

export function openClient(
  endpoints: readonly string[],
  client = 'front',
  token?: Uint8Array,
): RequestClient {
  return new RequestClient({ endpoints, client, model, ...(token ? { token } : {}) });
}

export const request = { promptTokens: 12, hitTokens: 8, maxNewTokens: 4 };

export type Events = LeaseEvent[];

/** Waits until something holds. */
export async function until(holds: () => boolean, what = 'it', limitMs = 10_000): Promise<void> {
  const limit = performance.now() + limitMs;
  while (!holds()) {
    if (performance.now() > limit) throw new Error(`${what} did not come to hold in ${limitMs / 1000} s`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
