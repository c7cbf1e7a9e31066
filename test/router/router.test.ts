import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  DualMapPolicy,
  LateLanePolicy,
  lateLane,
  paperDualMap,
  RoundRobinPolicy,
  Router,
  type RoutedRequest,
  type RouterOptions,
  type RoutingPolicy,
} from '../../src/router/index.js';
import { input, prompts } from './support.js';

const options: RouterOptions = {
  blockTokens: 512,
  prefillSPerToken: 0.001,
  sloS: 5,
  dispatchedTokensMax: 2000,
};

interface Log {
  readonly router: Router;
  readonly dispatched: RoutedRequest[];
  readonly refused: RoutedRequest[];
}

function routerOf(policy: RoutingPolicy, names: readonly string[], change: Partial<RouterOptions> = {}): Log {
  const dispatched: RoutedRequest[] = [];
  const refused: RoutedRequest[] = [];
  const router = new Router({ ...options, ...change }, policy, {
    dispatch: (request) => dispatched.push(request),
    refuse: (request) => refused.push(request),
  });
  for (const name of names) router.addInstance({ name, cacheTokens: 8192 }, 0);
  return { router, dispatched, refused };
}

describe('Router', () => {
  it('dispatches late: what is beyond the budget waits, in order, and follows as prefills are done', () => {
    const { router, dispatched } = routerOf(new RoundRobinPolicy(), ['a']);
    const requests = [1, 2, 3, 4].map((id) => router.submit(input([id]), 0));
    expect(dispatched.map(({ id }) => id)).toEqual(requests.slice(0, 3).map(({ id }) => id));
    expect(requests[3]!.state).toBe('waiting');
    // 522 tokens each, one of them a quarter of a second old.
    router.setHealth('a', true, 0.25);
    expect(router.cluster.queueS(requests[0]!.instance)).toBeCloseTo(4 * 0.522 - 0.25, 9);
    router.prefillDone(requests[0]!, 0.522);
    expect(requests[3]!.state).toBe('dispatched');
    expect(requests[0]!.state).toBe('decoding');
    router.finished(requests[0]!, 1);
    expect(router.requests).toBe(3);
  });

  it('counts a prompt as cached only once its prefill is done', () => {
    const { router } = routerOf(new RoundRobinPolicy(), ['a']);
    const first = router.submit(input([1, 2, 3]), 0);
    const second = router.submit(input([1, 2, 3]), 0);
    expect([first.hitBlocks, second.hitBlocks]).toEqual([0, 0]);
    router.prefillDone(first, 2);
    // The engine begins the second now: its estimate is made anew.
    expect(second.hitBlocks).toBe(3);
    expect(router.cluster.queueS(second.instance)).toBeCloseTo(0.01, 9);
    const exact = router.submit({ ...input([1, 2, 3], 512, 0) }, 2);
    expect(exact.hitBlocks).toBe(2);
  });

  it('keeps a ledger that comes out even, whatever happens in whatever order', () => {
    const events = fc.array(fc.tuple(fc.nat(9), fc.nat(), prompts), { maxLength: 120 });
    const policies = [
      (seed: number) =>
        new DualMapPolicy({ ...paperDualMap, seed, pointsPerWeight: 10, rebalance: 'any-overloaded' }),
      (seed: number) => new LateLanePolicy({ ...lateLane, seed }),
    ];
    fc.assert(
      fc.property(events, fc.nat(), fc.nat(1), (list, seed, which) => {
        const { router, refused } = routerOf(policies[which]!(seed), ['a', 'b', 'c']);
        const live = new Set<RoutedRequest>();
        let names = 0;
        let nowS = 0;
        for (const [kind, pick, ids] of list) {
          nowS += (pick % 7) / 10;
          const { instances, routable } = router.cluster;
          const request = [...live][pick % Math.max(1, live.size)];
          if (kind <= 4 && routable.length > 0) live.add(router.submit(input(ids), nowS));
          else if (kind === 5 && request?.state === 'dispatched') router.prefillDone(request, nowS);
          else if (kind === 6 && request !== undefined && request.state !== 'waiting') {
            router.finished(request, nowS);
          } else if (kind === 7 && request !== undefined) expect(router.cancelled(request, nowS)).toBe(true);
          else if (kind === 8) {
            if (pick % 3 === 0 && instances.length > 0) {
              router.removeInstance(instances[pick % instances.length]!.name, nowS);
            } else if (instances.length < 5)
              router.addInstance({ name: `new-${names++}`, cacheTokens: 8192 }, nowS);
          } else if (kind === 9 && instances.length > 0) {
            router.setHealth(instances[pick % instances.length]!.name, pick % 2 === 0, nowS);
          }
          for (const each of live) if (each.state === 'ended') live.delete(each);
          expect(router.requests).toBe(live.size);
          for (const instance of router.cluster.instances) {
            const mine = [...live].filter((each) => each.instance === instance);
            const sum = (state: string): number =>
              mine.filter((each) => each.state === state).reduce((s, each) => s + each.uncachedTokens, 0);
            expect(instance.waitingTokens).toBe(sum('waiting'));
            expect(instance.dispatchedTokens).toBe(sum('dispatched'));
            expect(instance.requests).toBe(mine.length);
            expect(instance.activeBlocks).toBe(mine.reduce((s, each) => s + each.blocks, 0));
            // Nothing waits where it may not be served, and something runs wherever something waits.
            if (!instance.routable) expect(instance.waiting.size).toBe(0);
            if (instance.waiting.size > 0) expect(instance.dispatched.size).toBeGreaterThan(0);
          }
        }
        for (const each of live) router.cancelled(each, nowS);
        expect(router.requests).toBe(0);
        for (const each of refused) expect(each.state).toBe('ended');
        for (const each of live) expect(router.cancelled(each, nowS)).toBe(false);
      }),
      { numRuns: 200 },
    );
  });

  it('routes anew what waits where an instance drains, and refuses it where there is none left', () => {
    const { router, refused } = routerOf(new RoundRobinPolicy(), ['a', 'b']);
    const requests = Array.from({ length: 10 }, (_, i) => router.submit(input([i]), 0));
    router.drainInstance('a', 1);
    expect(
      requests.filter(({ state }) => state === 'waiting').every(({ instance }) => instance.name === 'b'),
    ).toBe(true);
    expect(router.cluster.instances.map(({ name }) => name)).toEqual(['a', 'b']);
    router.removeInstance('a', 1);
    router.removeInstance('b', 1);
    const ended = requests.filter(({ state }) => state === 'ended').map(({ id }) => id);
    expect(refused.map(({ id }) => id).sort()).toEqual(ended.sort());
    expect(refused.length).toBe(4);
    expect(() => router.submit(input([1]), 2)).toThrow(/no instance to route to/);
  });

  it('routes anew what waits at a sick instance when another one leaves or joins', () => {
    for (const change of ['leave', 'join'] as const) {
      const { router } = routerOf(new RoundRobinPolicy(), ['a', 'b', 'c']);
      for (const name of ['a', 'b']) router.setHealth(name, false, 0); // most are sick: all serve
      for (let i = 0; i < 15; i++) router.submit(input([i]), 0);
      if (change === 'leave') router.drainInstance('a', 1);
      else router.addInstance({ name: 'd', cacheTokens: 8192 }, 1);
      const waits = (name: string): number =>
        router.cluster.instances.find((each) => each.name === name)!.waiting.size;
      expect([waits('a'), waits('b')]).toEqual([0, 0]);
      expect(waits('c')).toBeGreaterThan(2);
    }
  });

  it('passes over sick instances until more than half are sick', () => {
    const { router } = routerOf(new RoundRobinPolicy(), ['a', 'b', 'c', 'd']);
    const routable = (): string[] => router.cluster.routable.map(({ name }) => name);
    router.setHealth('a', false, 0);
    router.setHealth('b', false, 0);
    expect(routable()).toEqual(['c', 'd']);
    router.setHealth('c', false, 0);
    expect(routable()).toEqual(['a', 'b', 'c', 'd']);
    router.setHealth('a', true, 0);
    expect(routable()).toEqual(['a', 'd']);
  });

  it('adds what others have sent to an instance, by its own report', () => {
    const { router } = routerOf(new RoundRobinPolicy(), ['a']);
    const { instance } = router.submit(input([1]), 0);
    router.reportLoad('a', 1522, 0);
    expect(router.cluster.queueS(instance)).toBeCloseTo(1.522, 9);
    router.reportLoad('a', null, 0);
    expect(router.cluster.queueS(instance)).toBeCloseTo(0.522, 9);
    expect(() => router.reportLoad('a', -1, 0)).toThrow(/-1 pending tokens/);
  });

  it('takes the longest hit first where told so, but no later than the age bound', () => {
    const order = (ageBoundS: number): number[] => {
      const { router, dispatched } = routerOf(new RoundRobinPolicy(), ['a'], {
        queueOrder: 'longest-hit',
        ageBoundS,
      });
      const warm = router.submit(input([1, 2, 3]), 0);
      router.prefillDone(warm, 1.6);
      const all = [
        [9, 9, 9, 9],
        [8, 8, 8],
        [1, 2, 3],
      ].map((ids) => router.submit(input(ids), 2));
      router.prefillDone(all[0]!, 4);
      return dispatched.slice(2).map((request) => all.indexOf(request));
    };
    expect(order(30)[0]).toBe(2);
    expect(order(1)[0]).toBe(1);
    expect(() => routerOf(new RoundRobinPolicy(), [], { queueOrder: 'longest-hit' })).toThrow(
      /give ageBoundS/,
    );
  });

  it('names what is wrong with its input', () => {
    const { router } = routerOf(new RoundRobinPolicy(), ['a']);
    expect(() => router.addInstance({ name: 'a', cacheTokens: 8192 }, 0)).toThrow(/"a" is empty or taken/);
    expect(() => router.addInstance({ name: 'b', cacheTokens: 100 }, 0)).toThrow(/at least a block/);
    expect(() => router.addInstance({ name: 'b', cacheTokens: 8192, weight: 0 }, 0)).toThrow(
      /weight of b is 0/,
    );
    expect(() => router.removeInstance('x', 0)).toThrow(/no instance x/);
    expect(() => router.submit({ ...input([1]), promptTokens: 0 }, 0)).toThrow(/at least one token/);
    expect(() => router.submit({ ...input([1]), blocks: 2 }, 0)).toThrow(/two u32 a block/);
    const request = router.submit(input([1]), 1);
    expect(() => router.prefillDone(request, 0.5)).toThrow(/time must not go back/);
    router.finished(request, 2);
    expect(() => router.finished(request, 2)).toThrow(/is ended/);
  });
});
