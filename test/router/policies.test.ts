import { describe, expect, it } from 'vitest';
import {
  BoundedLoadPolicy,
  CacheAffinityPolicy,
  CacheAwarePolicy,
  DualMapPolicy,
  DynamoPolicy,
  HashAffinityPolicy,
  LateLanePolicy,
  lateLane,
  LeastLoadedPolicy,
  MaxHitPolicy,
  MinTtftPolicy,
  paperDualMap,
  PowerOfTwoPolicy,
  PreblePolicy,
  Router,
  type RoutedRequest,
  type RoutingPolicy,
} from '../../src/router/index.js';
import { input } from './support.js';

const options = { blockTokens: 512, prefillSPerToken: 0.001, sloS: 5, dispatchedTokensMax: 1000 };
const names = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'];

function routerOf(policy: RoutingPolicy, instances = 8): Router {
  const router = new Router(options, policy, { dispatch: () => undefined });
  for (const name of names.slice(0, instances)) router.addInstance({ name, cacheTokens: 256 * 512 }, 0);
  return router;
}

let unique = 1000;
const fresh = (blocks: number): number[] => Array.from({ length: blocks }, () => unique++);
const at = (router: Router, name: string) =>
  router.cluster.instances.find((instance) => instance.name === name)!;

/** Makes an instance hold a prompt. */
function cache(router: Router, name: string, ids: readonly number[]): void {
  const { keys, blocks } = input(ids);
  at(router, name).cache.touch(keys, 0, blocks);
}

/** Gives an instance so many seconds of others' work. */
function load(router: Router, name: string, queueS: number): void {
  router.reportLoad(name, queueS / options.prefillSPerToken, router.cluster.nowS);
}

const submit = (router: Router, ids: readonly number[]): RoutedRequest =>
  router.submit(input(ids), router.cluster.nowS);
const nameOf = (router: Router, ids: readonly number[]): string => submit(router, ids).instance.name;

describe('policies by load', () => {
  it('least-loaded and power-of-two take fewer pending tokens', () => {
    const router = routerOf(new LeastLoadedPolicy(1));
    for (const name of names) load(router, name, name === 'f' ? 1 : 2);
    expect(nameOf(router, fresh(1))).toBe('f');
    const two = routerOf(new PowerOfTwoPolicy(1), 2);
    load(two, 'a', 9);
    for (let i = 0; i < 5; i++) expect(nameOf(two, fresh(1))).toBe('b');
  });

  it('breaks ties by chance, not always the same way', () => {
    for (const policy of [
      new LeastLoadedPolicy(2),
      new MinTtftPolicy(2),
      new DynamoPolicy(2),
      new MaxHitPolicy(2),
    ]) {
      const chosen = new Set<string>();
      for (let i = 0; i < 40; i++) {
        const router = routerOf(policy, 0);
        for (const name of ['x', 'y', 'z']) router.addInstance({ name: `${name}${i}`, cacheTokens: 8192 }, 0);
        chosen.add(submit(router, fresh(1)).instance.name[0]!);
      }
      expect(chosen.size, policy.name).toBe(3);
    }
  });
});

describe('policies by prefix', () => {
  it('hash-affinity and cache-affinity ignore what more than half of all requests share', () => {
    for (const policy of [new HashAffinityPolicy(1), new CacheAffinityPolicy(1), new MaxHitPolicy(1)]) {
      const router = routerOf(policy);
      for (let i = 0; i < 30; i++)
        router.finished(submit(router, [1, unique++, unique++]), router.cluster.nowS);
      const chosen = new Set<string>();
      for (let i = 0; i < 30; i++) {
        const request = submit(router, [1, unique++, unique++]);
        chosen.add(request.instance.name);
        router.finished(request, router.cluster.nowS);
      }
      expect(chosen.size, policy.name).toBeGreaterThan(4);
    }
  });

  it('cache-affinity and max-hit follow the longest match, whatever its load', () => {
    for (const policy of [new CacheAffinityPolicy(1), new MaxHitPolicy(1)]) {
      const router = routerOf(policy);
      const ids = fresh(6);
      cache(router, 'c', ids.slice(0, 2));
      cache(router, 'e', ids.slice(0, 4));
      load(router, 'e', 100);
      expect(nameOf(router, ids), policy.name).toBe('e');
    }
    const router = routerOf(new MaxHitPolicy(1));
    const ids = fresh(6);
    cache(router, 'c', ids);
    cache(router, 'e', ids);
    load(router, 'e', 1);
    expect(nameOf(router, ids)).toBe('c');
  });

  it('bounded-load goes on along the ring when an instance has more than its share', () => {
    const router = routerOf(new BoundedLoadPolicy(1), 4);
    const ids = fresh(3);
    const loads = new Map<string, number>();
    for (let i = 0; i < 40; i++) {
      const name = nameOf(router, ids);
      loads.set(name, (loads.get(name) ?? 0) + 1);
    }
    expect([...loads.values()].sort((a, b) => b - a)[0]).toBeLessThanOrEqual(Math.ceil((1.25 * 40) / 4));
  });
});

describe('published policies', () => {
  it('min-ttft weighs the queue against what is cached', () => {
    const router = routerOf(new MinTtftPolicy(1), 2);
    const ids = fresh(4);
    cache(router, 'a', ids);
    load(router, 'a', 1.9);
    expect(nameOf(router, ids)).toBe('a');
    load(router, 'a', 3);
    expect(nameOf(router, ids)).toBe('b');
  });

  it('dynamo counts active blocks beside prefill', () => {
    const router = routerOf(new DynamoPolicy(1), 2);
    const decoding = submit(router, fresh(40));
    router.prefillDone(decoding, 60);
    const other = decoding.instance.name === 'a' ? 'b' : 'a';
    expect(nameOf(router, fresh(2))).toBe(other);
  });

  it('sglang follows the match, and balances when requests are far apart', () => {
    const thresholds = { cacheThreshold: 0.3, balanceAbsThreshold: 4, balanceRelThreshold: 1.5 };
    const router = routerOf(new CacheAwarePolicy(1, thresholds), 2);
    const ids = fresh(4);
    cache(router, 'b', ids);
    for (let i = 0; i < 5; i++) expect(nameOf(router, ids)).toBe('b');
    expect(nameOf(router, ids)).toBe('a');
    const misses = routerOf(new CacheAwarePolicy(1), 2);
    cache(misses, 'a', fresh(3));
    expect(nameOf(misses, fresh(3))).toBe('b');
  });

  it('preble exploits a match of more than half, and explores by the load of three minutes', () => {
    const router = routerOf(new PreblePolicy(1), 2);
    const ids = fresh(10);
    cache(router, 'a', ids.slice(0, 6));
    expect(nameOf(router, ids)).toBe('a');
    // The first left 2 s at a: a prompt that nobody holds goes to b, then where less was sent.
    expect(nameOf(router, fresh(2))).toBe('b');
    expect(nameOf(router, fresh(4))).toBe('b');
    expect(nameOf(router, fresh(4))).toBe('a');
    router.setHealth('a', true, 500);
    cache(router, 'b', ids.slice(0, 6));
    const afterwards = submit(router, ids);
    expect(['a', 'b']).toContain(afterwards.instance.name);
  });
});

describe('DualMapPolicy', () => {
  it('uses two instances for one prefix, and spreads prefixes over all pairs', () => {
    const router = routerOf(new DualMapPolicy({ ...paperDualMap, rebalance: 'none' }));
    const ids = fresh(3);
    const used = new Set<string>();
    for (let i = 0; i < 15; i++) used.add(nameOf(router, ids));
    expect(used.size).toBe(2);
    const pairs = new Set<string>();
    for (let i = 0; i < 2000; i++) {
      const { primary, secondary } = submit(router, fresh(1));
      expect(primary).not.toBe(secondary);
      pairs.add([primary!.name, secondary!.name].sort().join());
    }
    expect(pairs.size).toBe(28);
  });

  it('lets sick instances out without moving other pairs, and stops when most are sick', () => {
    const router = routerOf(new DualMapPolicy(paperDualMap));
    const prompts = Array.from({ length: 200 }, () => fresh(1));
    const pair = (ids: readonly number[]): (string | undefined)[] => {
      const request = submit(router, ids);
      router.cancelled(request, router.cluster.nowS);
      return [request.primary?.name, request.secondary?.name];
    };
    const before = prompts.map(pair);
    router.setHealth('c', false, 0);
    for (const [i, now] of prompts.map(pair).entries()) {
      expect(now).not.toContain('c');
      if (!before[i]!.includes('c')) expect(now).toEqual(before[i]);
    }
    router.setHealth('c', true, 0);
    expect(prompts.map(pair)).toEqual(before);
    for (const name of ['a', 'b', 'c', 'd', 'e']) router.setHealth(name, false, 0);
    expect(prompts.map(pair)).toEqual(before);
  });

  it('works alone, and with prompts of less than a block', () => {
    const router = routerOf(new DualMapPolicy(paperDualMap), 1);
    expect(nameOf(router, fresh(2))).toBe('a');
    expect(nameOf(routerOf(new DualMapPolicy(paperDualMap)), [])).toMatch(/^[a-h]$/);
  });
});

describe('LateLanePolicy', () => {
  it('follows the holder, wherever it is, and leaves it for a candidate in time only where that costs little', () => {
    const router = routerOf(new LateLanePolicy({ ...lateLane, leavesUpTo: 0.1 }));
    const ids = fresh(3);
    const first = submit(router, ids);
    router.finished(first, 2);
    expect(nameOf(router, [...ids, ...fresh(1)])).toBe(first.instance.name);
    load(router, first.instance.name, 50);
    expect(nameOf(router, [...ids, ...fresh(1)])).toBe(first.instance.name);
    expect(nameOf(router, [...ids, ...fresh(60)])).toBe(first.instance.name);
  });

  it('puts what is late anyway where the wait is longest, up to the bound', () => {
    const router = routerOf(new LateLanePolicy({ ...lateLane, samples: 64, counts: false }));
    for (const [i, name] of names.entries()) load(router, name, 10 + i);
    expect(nameOf(router, fresh(1))).toBe('h');
    load(router, 'h', 61);
    expect(nameOf(router, fresh(1))).toBe('g');
    for (const name of names) load(router, name, 70);
    load(router, 'b', 65);
    expect(nameOf(router, fresh(1))).toBe('b');
    load(router, 'd', 1);
    expect(nameOf(router, fresh(1))).toBe('d');
  });

  it('keeps account of what it sent where loads are not told', () => {
    const blind = { queueS: () => 0 };
    const router = new Router({ ...options, loadView: blind }, new LateLanePolicy(lateLane), {
      dispatch: () => undefined,
    });
    for (const name of names) router.addInstance({ name, cacheTokens: 256 * 512 }, 0);
    const counts = new Map<string, number>();
    for (let i = 0; i < 64; i++) {
      const name = nameOf(router, fresh(1));
      counts.set(name, (counts.get(name) ?? 0) + 1);
    }
    expect(Math.max(...counts.values())).toBeLessThan(11);
  });
});
