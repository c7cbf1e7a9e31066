import { TokenLog } from '../leases/index.js';
import type { EngineCapacity } from '../scheduler/index.js';
import { ModelClient } from './clients.js';
import { ModelCluster, ModelGroup } from './engines.js';
import type { NetworkFaults } from './network.js';
import { ModelScheduler } from './scheduler.js';
import { World } from './world.js';

export interface ChaosResult {
  readonly seed: number;
  readonly virtualS: number;
  readonly requests: number;
  /** How they ended, by code; OK. */
  readonly outcomes: Readonly<Record<string, number>>;
  /** What was done to them, by kind. */
  readonly faults: Readonly<Record<string, number>>;
  readonly lateResults: number;
  readonly totals: ModelScheduler['totals'];
  /** None, if all holds. */
  readonly violations: readonly string[];
}

const leaseS = 1;
/** Faults until then; afterwards everything has to come to its end. */
const faultsEndS = 8;
const limitS = 300;

/** One seeded schedule of faults over the ledger with model engines and clients, in virtual time. */
export function runSchedule(seed: number): ChaosResult {
  const world = new World(seed);
  const faults: NetworkFaults = {
    loss: world.chance(0.5) ? world.between(0, 0.03) : 0,
    duplicate: world.chance(0.5) ? world.between(0, 0.1) : 0,
    reorder: world.chance(0.5) ? world.between(0, 0.1) : 0,
    longestDelayS: world.pick([0.002, 0.02, 0.2])!,
  };
  const scheduler = new ModelScheduler(
    world,
    {
      model: 'model',
      policy: world.pick(['shorter-queue', 'split', 'prefill'] as const)!,
      ...{ blockTokens: 4, blockBytes: 100, decodeSpareBlocks: 1, seed },
      ...{ leaseS, maxTries: 3, noEngineS: 200, clientGoneS: 200, retainS: 200 },
      maxWaiting: world.pick([4, 1000])!,
    },
    leaseS,
  );
  const cluster = new ModelCluster();
  for (const engines of capacities(world)) new ModelGroup(world, faults, scheduler, cluster, engines);
  const clients = [0, 1].map((i) => new ModelClient(world, faults, scheduler, `client-${i}`));
  submitAll(world, clients);
  const counts: Record<string, number> = {};
  inflict(world, scheduler, cluster, clients, counts);
  world.after(faultsEndS, () => Object.assign(faults, { loss: 0, reorder: 0 }));
  const all = (): ModelClient['requests'] => clients.flatMap(({ requests }) => requests);
  const over = (): boolean => world.nowS > faultsEndS && all().every(({ outcome }) => outcome !== undefined);
  world.runUntil(limitS, () => over() || world.violations.length > 0);
  for (const { key, outcome } of all()) {
    if (outcome === undefined && world.violations.length === 0) world.violate(`${key} has not ended`);
  }
  scheduler.end();
  const outcomes: Record<string, number> = {};
  for (const { outcome = 'none' } of all()) outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
  return {
    ...{ seed, virtualS: world.nowS, requests: all().length, outcomes, faults: counts },
    ...{ lateResults: scheduler.lateResults, totals: scheduler.totals, violations: world.violations },
  };
}

function capacities(world: World): EngineCapacity[][] {
  const groups: EngineCapacity[][] = [];
  for (const role of ['prefill', 'decode'] as const) {
    const count = world.whole(1, 3);
    for (let g = 0; g < count; g++) {
      const members = world.whole(1, 2);
      const node = `host-${g}`; // a host has groups of both roles
      groups.push(
        Array.from({ length: members }, (_, e) => ({
          engine: `${role}-${g}-${e}`,
          ...{ node, group: `${role}-${g}`, role },
          bufferBlocks: world.pick([12, 40])!,
          hbmBlocks: role === 'prefill' ? 0 : 40,
          readRateBytesPerS: 1000,
        })),
      );
    }
  }
  return groups;
}

function submitAll(world: World, clients: readonly ModelClient[]): void {
  const count = world.whole(4, 16);
  for (let i = 0; i < count; i++) {
    const client = world.pick(clients)!;
    const promptTokens = world.whole(1, 32);
    const request = {
      key: `r${i}`,
      promptTokens,
      hitTokens: 4 * world.whole(0, Math.floor(promptTokens / 4)),
      tokens: world.whole(0, 12),
      deadlineS: world.chance(0.1) ? world.between(0.2, 10) : undefined,
      ...{ log: new TokenLog(), cancelled: false, outcome: undefined },
    };
    world.after(world.between(0, faultsEndS), () => {
      client.submit(request);
      if (world.chance(0.1)) world.after(world.between(0, 3), () => client.cancel(request));
    });
  }
}

function inflict(
  world: World,
  scheduler: ModelScheduler,
  cluster: ModelCluster,
  clients: readonly ModelClient[],
  counts: Record<string, number>,
): void {
  const group = (): ModelGroup => world.pick(cluster.groups)!;
  const kinds: Record<string, () => void> = {
    engine_death: () => {
      const one = group();
      one.kill(world.whole(1, one.engines.length) - 1, world.between(0.1, 4));
    },
    leader_death: () => group().kill(0, world.between(0.1, 4)),
    host_death: () => {
      const { node } = group().engines[0]!.capacity;
      const forS = world.between(0.1, 4);
      for (const one of cluster.groups) if (one.engines[0]!.capacity.node === node) one.killAll(forS);
    },
    scheduler_restart: () => {
      if (!scheduler.ledger) return;
      scheduler.die();
      world.after(world.between(0.01, 3), () => scheduler.start());
    },
    scheduler_pause: () => scheduler.pause(world.between(0.1, 5)),
    engine_pause: () => group().pause(world.between(0.1, 5)),
    engine_disconnect: () => group().disconnect(),
    client_disconnect: () => world.pick(clients)!.disconnect(),
    clock_forward: () => scheduler.leap(world.between(0.1, 4000)),
    clock_back: () => scheduler.leap(-world.between(0.1, 4000)),
  };
  const names = Object.keys(kinds);
  const count = world.whole(0, 12);
  for (let i = 0; i < count; i++) {
    const name = world.pick(names)!;
    world.after(world.between(0, faultsEndS), () => {
      counts[name] = (counts[name] ?? 0) + 1;
      kinds[name]!();
    });
  }
}
