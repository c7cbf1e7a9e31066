import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  rebalance,
  Router,
  type Cluster,
  type Instance,
  type RoutedRequest,
} from '../../src/router/index.js';
import { input, prompts } from './support.js';

const options = { blockTokens: 512, prefillSPerToken: 0.001, sloS: 5, dispatchedTokensMax: 1000 };

/** Puts every request at the first instance, its other candidate given by `others`, and rebalances after the last. */
function build(
  requests: readonly { ids: number[]; other: number; cached: number }[],
  onLast: (source: Instance, cluster: Cluster, move: (request: RoutedRequest, to: Instance) => void) => void,
): Router {
  let count = 0;
  const router: Router = new Router(
    options,
    {
      name: 'test',
      route: (request, { instances }) => {
        const { other, cached } = requests[count++]!;
        request.primary = instances[0]!;
        request.secondary = instances[1 + (other % (instances.length - 1))]!;
        request.secondary.cache.touch(request.keys, 0, Math.min(cached, request.blocks));
        return request.primary;
      },
      queued: (request, cluster, move) => {
        if (count === requests.length) onLast(request.instance, cluster, move);
      },
    },
    { dispatch: () => undefined },
  );
  for (const name of ['a', 'b', 'c']) router.addInstance({ name, cacheTokens: 64 * 512 }, 0);
  for (const [i, { ids }] of requests.entries()) router.submit(input(ids), i / 10);
  return router;
}

/** The round, restated over plain numbers: which requests go. */
function plain(source: Instance, cluster: Cluster): Set<number> {
  const queue = new Map(cluster.instances.map((instance) => [instance, cluster.queueS(instance)]));
  const own = new Map<RoutedRequest, number>();
  const rows: { request: RoutedRequest; to: Instance; here: number; there: number; benefit: number }[] = [];
  let ahead = cluster.dispatchedS(source);
  for (let request = source.waiting.first; request !== null; request = request.next) {
    const waited = cluster.nowS - request.submittedS;
    ahead += cluster.computeS(request, cluster.hits(request, source));
    own.set(request, request.uncachedTokens * options.prefillSPerToken);
    const to = request.secondary!;
    const there = waited + cluster.computeS(request, cluster.hits(request, to));
    const [here, total] = [waited + ahead, there + queue.get(to)!];
    if (here > total && total < options.sloS) rows.push({ request, to, here, there, benefit: here - total });
  }
  const moved = new Set<number>();
  for (const { request, to, here, there } of rows.sort((a, b) => b.benefit - a.benefit)) {
    if (queue.get(source)! <= options.sloS) break;
    const total = there + queue.get(to)!;
    if (total >= options.sloS || total >= here) continue;
    moved.add(request.id);
    queue.set(source, queue.get(source)! - own.get(request)!);
    queue.set(to, queue.get(to)! + cluster.computeS(request, cluster.hits(request, to)));
  }
  return moved;
}

const requests = fc.array(
  fc.record({ ids: prompts, other: fc.nat(3), cached: fc.integer({ min: 0, max: 6 }) }),
  { minLength: 1, maxLength: 25 },
);

describe('rebalance', () => {
  it('moves what the plain restatement moves, and only to the other candidate', () => {
    fc.assert(
      fc.property(requests, (list) => {
        build(list, (source, cluster, move) => {
          const expected = plain(source, cluster);
          const moved = new Set<number>();
          const count = rebalance(source, cluster, { targets: 'pair' }, (request, to) => {
            expect(to).toBe(request.secondary);
            expect(request.state).toBe('waiting');
            moved.add(request.id);
            move(request, to);
            expect(cluster.nowS - request.submittedS).toBeLessThan(options.sloS);
          });
          expect(moved).toEqual(expected);
          expect(count).toBe(moved.size);
        });
      }),
      { numRuns: 300 },
    );
  });

  it('stops when the source meets the SLO, and leaves alone who would be late there, too', () => {
    const short = Array.from({ length: 6 }, () => ({ ids: [7], other: 0, cached: 0 }));
    build(short, (source, cluster, move) => {
      // Nothing is overloaded: 6 prompts of 0.5 s.
      expect(rebalance(source, cluster, { targets: 'pair' }, move)).toBe(0);
    });
    const long = Array.from({ length: 4 }, () => ({
      ids: Array.from({ length: 12 }, (_, i) => i),
      other: 0,
      cached: 0,
    }));
    build(long, (source, cluster, move) => {
      expect(cluster.queueS(source)).toBeGreaterThan(options.sloS);
      expect(rebalance(source, cluster, { targets: 'pair' }, move)).toBe(0);
    });
  });

  it('goes to the least loaded of all where told so and the pair has no room', () => {
    const list = Array.from({ length: 12 }, (_, i) => ({ ids: [i, 1, 2, 3], other: 0, cached: 0 }));
    build(list, (source, cluster, move) => {
      const targets = new Set<string>();
      rebalance(source, cluster, { targets: 'any' }, (request, to) => {
        targets.add(to.name);
        move(request, to);
      });
      expect(targets).toContain('b');
    });
  });
});
