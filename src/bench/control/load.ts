/** On a thread of its own: front ends that submit, and engines that do nothing but say that they have. */
import { setMaxListeners } from 'node:events';
import { parentPort, workerData } from 'node:worker_threads';
import { EngineClient, RequestClient } from '../../scheduler-client/index.js';
import type { Assignment, EngineCapacity, EngineRole } from '../../scheduler/index.js';
import type { ControlLoadOptions, ControlLoadResult } from './types.js';

const blockTokens = 64;
const tickMs = 1;
const warmUpMs = 3000;

class Load {
  readonly #options: ControlLoadOptions;
  readonly #engines: EngineClient[];
  readonly #clients: RequestClient[];
  readonly #stop = new AbortController();
  /** Prefilled, or waited for by the decode side, by admission. */
  readonly #prefilled = new Set<number>();
  readonly #waiting = new Map<number, () => void>();
  #requests = 0;
  #latenciesMs: number[] = [];
  #ended = 0;
  #failed = 0;

  constructor(options: ControlLoadOptions) {
    this.#options = options;
    setMaxListeners(0, this.#stop.signal);
    const { endpoint, model, clients } = options;
    this.#engines = groupsOf(options).map((capacities) => this.#group(capacities));
    this.#clients = Array.from(
      { length: clients },
      (_, i) => new RequestClient({ endpoints: [endpoint], model, client: `front-${i}` }),
    );
  }

  #group(capacities: readonly EngineCapacity[]): EngineClient {
    const { endpoint, model } = this.#options;
    const { group, role } = capacities[0]!;
    const client: EngineClient = new EngineClient({
      endpoints: [endpoint],
      ...{ model, group, credits: 4096 },
      engines: capacities.map((capacity) => ({ capacity })),
      onRevoked: (request, error, admission) => client.fail(request, error, admission),
    });
    void this.#fetch(client, capacities, role).catch(() => undefined);
    return client;
  }

  async #fetch(client: EngineClient, capacities: readonly EngineCapacity[], role: EngineRole): Promise<void> {
    const { group } = capacities[0]!;
    for (let sequence = 1; ; sequence++) {
      const loads = capacities.map(({ engine }) => {
        return { engine, sequence, unfinishedRequests: 0, unfinishedTokens: 0, nodeReadQueueBlocks: 0 };
      });
      const assignments = await client.fetch(group, loads, this.#stop.signal);
      for (const assignment of assignments) {
        if (role === 'prefill') this.#prefill(client, assignment);
        else this.#decode(client, assignment);
      }
    }
  }

  #prefill(client: EngineClient, { request, admission }: Assignment): void {
    client.complete(request, 'prefill-read', admission);
    client.complete(request, 'prefill', admission);
    const decode = this.#waiting.get(admission);
    this.#waiting.delete(admission);
    if (decode) setImmediate(decode);
    else this.#prefilled.add(admission);
  }

  #decode(client: EngineClient, { request, admission }: Assignment): void {
    client.complete(request, 'decode-read', admission);
    const finish = (): void => {
      client.complete(request, 'decode-buffer', admission);
      client.complete(request, 'request', admission);
    };
    if (this.#prefilled.delete(admission)) setImmediate(finish);
    else this.#waiting.set(admission, finish);
  }

  #submit(after?: () => void): void {
    const index = this.#requests++;
    const promptTokens = 4096 + ((index * 7919) % 60_000);
    const startedMs = performance.now();
    const { ended } = this.#clients[index % this.#clients.length]!.submit({
      key: `turn-${index}`,
      promptTokens,
      hitTokens: Math.floor((promptTokens - 429) / blockTokens) * blockTokens,
      maxNewTokens: 176,
    });
    void ended
      .then(
        () => {
          this.#ended++;
          this.#latenciesMs.push(performance.now() - startedMs);
        },
        () => this.#failed++,
      )
      .then(after);
  }

  /** As many as go, with so many under way. */
  async closed(outstanding: number, seconds: number): Promise<ControlLoadResult> {
    let stopped = false;
    const next = (): void => {
      if (!stopped) this.#submit(next);
    };
    for (let i = 0; i < outstanding; i++) next();
    await pause(warmUpMs); // until the code is compiled
    this.#reset();
    const startedMs = performance.now();
    await pause(seconds * 1000);
    const result = this.#result(startedMs);
    stopped = true;
    await this.#settled();
    return result;
  }

  /** At a rate, whatever becomes of them. */
  async open(perS: number, seconds: number): Promise<ControlLoadResult> {
    this.#reset();
    const startedMs = performance.now();
    let sent = 0;
    while (performance.now() - startedMs < seconds * 1000) {
      const due = Math.floor(((performance.now() - startedMs) / 1000) * perS);
      for (; sent < due; sent++) this.#submit();
      await pause(tickMs);
    }
    const result = this.#result(startedMs);
    await this.#settled();
    return result;
  }

  #reset(): void {
    this.#latenciesMs = [];
    this.#ended = 0;
    this.#failed = 0;
  }

  #result(startedMs: number): ControlLoadResult {
    const sorted = this.#latenciesMs.sort((a, b) => a - b);
    const at = (q: number): number =>
      sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? NaN;
    return {
      requests: this.#ended,
      failed: this.#failed,
      perS: this.#ended / ((performance.now() - startedMs) / 1000),
      p50Ms: at(0.5),
      p99Ms: at(0.99),
      maxMs: at(1),
    };
  }

  async #settled(): Promise<void> {
    while (this.#clients.some(({ open }) => open > 0)) await pause(5);
  }

  async close(): Promise<void> {
    this.#stop.abort();
    await Promise.all([...this.#clients, ...this.#engines].map((one) => one.close()));
  }
}

function groupsOf({ engines, groupEngines }: ControlLoadOptions): EngineCapacity[][] {
  const prefill = Math.max(1, Math.round(engines / 3));
  const roles: [EngineRole, number][] = [
    ['prefill', prefill],
    ['decode', Math.max(1, engines - prefill)],
  ];
  return roles.flatMap(([role, count]) =>
    Array.from({ length: Math.ceil(count / groupEngines) }, (_, g) =>
      Array.from({ length: Math.min(groupEngines, count - g * groupEngines) }, (__, e) => ({
        engine: `${role}-${g}-${e}`,
        node: `${role}-node-${g}`,
        group: `${role}-${g}`,
        role,
        bufferBlocks: 100_000,
        hbmBlocks: role === 'prefill' ? 0 : 100_000,
        readRateBytesPerS: 50e9,
      })),
    ),
  );
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

const port = parentPort!;
const load = new Load(workerData as ControlLoadOptions);
port.on(
  'message',
  ({
    outstanding,
    perS,
    seconds,
    end,
  }: {
    outstanding?: number;
    perS?: number;
    seconds: number;
    end?: boolean;
  }) => {
    const run = async (): Promise<unknown> => {
      if (end === true) return load.close();
      return outstanding === undefined ? load.open(perS!, seconds) : load.closed(outstanding, seconds);
    };
    void run().then(
      (result) => port.postMessage({ result: result ?? null }),
      (error: unknown) => port.postMessage({ error: String(error) }),
    );
  },
);
