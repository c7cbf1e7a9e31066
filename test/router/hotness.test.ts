import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { growFrom } from '../../src/router/hotness.js';
import {
  DualMapPolicy,
  HotnessTree,
  paperDualMap,
  Router,
  type HotnessOptions,
  type RoutedRequest,
} from '../../src/router/index.js';
import { keysOf, prompts } from './support.js';

/** The tree, restated: the window is a list, counts are found by going through it. */
class PlainTree {
  #window: { prefixes: string[]; weight: number }[] = [];
  readonly #extended = new Set<string>();

  constructor(readonly options: HotnessOptions) {}

  #with(prefix: string): { prefixes: string[]; weight: number }[] {
    return this.#window.filter(({ prefixes }) => prefixes.includes(prefix));
  }

  #share(prefix: string): number {
    const sum = (entries: { weight: number }[]): number => entries.reduce((s, { weight }) => s + weight, 0);
    return sum(this.#with(prefix)) / sum(this.#window);
  }

  depthOf(ids: readonly number[]): number {
    let depth = Math.min(1, ids.length);
    while (depth < ids.length) {
      const prefix = ids.slice(0, depth).join();
      if (!this.#extended.has(prefix)) break;
      if (this.#share(prefix) < this.options.shrinkBelow) {
        this.#extended.delete(prefix);
        break;
      }
      depth++;
    }
    return depth;
  }

  observe(ids: readonly number[], weight: number): void {
    if (this.#window.length === this.options.window) {
      const gone = this.#window.shift()!;
      for (const prefix of gone.prefixes) if (this.#with(prefix).length === 0) this.#extended.delete(prefix);
    }
    const prefixes: string[] = [];
    for (let count = 1; count <= ids.length; count++) {
      const prefix = ids.slice(0, count).join();
      prefixes.push(prefix);
      if (this.#with(prefix).length < growFrom) break;
    }
    this.#window.push({ prefixes, weight });
    for (const prefix of prefixes) {
      if (this.#extended.has(prefix)) continue;
      const isHot =
        this.#with(prefix).length >= this.options.minSamples &&
        this.#share(prefix) > this.options.extendAbove;
      if (!isHot) break;
      this.#extended.add(prefix);
    }
  }
}

const key = (ids: readonly number[]): [Uint32Array, number, number] => [keysOf(ids), 0, ids.length];

describe('HotnessTree', () => {
  it('keys prompts as deep as the plain restatement does', () => {
    const requests = fc.array(fc.tuple(prompts, fc.integer({ min: 1, max: 9 })), { maxLength: 200 });
    const scales = fc.record({
      window: fc.integer({ min: 2, max: 60 }),
      extendAbove: fc.constantFrom(0.2, 0.3, 0.5),
      shrinkBelow: fc.constantFrom(0.05, 0.1, 0.2),
      minSamples: fc.integer({ min: 1, max: 5 }),
    });
    fc.assert(
      fc.property(scales, requests, (scale, list) => {
        const options = { ...scale, maxNodes: 1000 };
        const tree = new HotnessTree(options);
        const plain = new PlainTree(options);
        for (const [ids, weight] of list) {
          expect(tree.depthOf(...key(ids))).toBe(plain.depthOf(ids));
          tree.observe(...key(ids), weight);
          plain.observe(ids, weight);
        }
      }),
      { numRuns: 300 },
    );
  });

  const options = { window: 100, extendAbove: 0.25, shrinkBelow: 0.125, minSamples: 20, maxNodes: 1000 };
  const hot = [1, 2, 3, 9];
  let fresh = 100;
  const observe = (tree: HotnessTree, ids: readonly number[]): void => {
    tree.depthOf(...key(ids));
    tree.observe(...key(ids), 1);
  };

  it('extends through a hot prefix at once, and shrinks again when it has cooled', () => {
    const tree = new HotnessTree(options);
    for (let i = 0; i < 60; i++) observe(tree, [1, 2, 3, fresh++]);
    expect(tree.depthOf(...key(hot))).toBe(4);
    for (let i = 0; i < 95; i++) observe(tree, [fresh++]);
    // The share is below the threshold now: it shrinks, and stays so.
    expect(tree.depthOf(...key(hot))).toBe(1);
    expect(tree.depthOf(...key(hot))).toBe(1);
    expect(tree.statistics.changes).toBeGreaterThanOrEqual(4);
  });

  it('does not flap between the thresholds', () => {
    const tree = new HotnessTree(options);
    for (let i = 0; i < 100; i++) observe(tree, i % 2 === 0 ? [1, fresh++] : [fresh++]);
    const { changes } = tree.statistics;
    for (let i = 0; i < 400; i++) {
      observe(tree, i % 5 === 0 ? [1, fresh++] : [fresh++]);
      expect(tree.depthOf(...key([1, 5]))).toBe(2);
    }
    expect(tree.statistics.changes).toBe(changes);
  });

  it('keeps the former pair eligible while it has hits', () => {
    const tree = new HotnessTree(options);
    for (let i = 0; i < 60; i++) observe(tree, [1, 2, 3, fresh++]);
    const depth = tree.depthOf(...key(hot));
    expect(tree.formerDepth).toBeGreaterThan(0);
    expect(tree.formerDepth).toBeLessThan(depth);
    for (let i = 0; i < 300; i++) {
      tree.depthOf(...key(hot));
      tree.sawFormerPair(true);
    }
    expect(tree.formerDepth).toBeGreaterThan(0);
    for (let i = 0; i < options.window; i++) {
      tree.depthOf(...key(hot));
      expect(tree.formerDepth).toBeGreaterThan(0);
      tree.sawFormerPair(false);
    }
    tree.depthOf(...key(hot));
    expect(tree.formerDepth).toBe(0);
  });

  it('stays within its nodes and forgets what left the window', () => {
    const tree = new HotnessTree({ ...options, maxNodes: 50 });
    for (let i = 0; i < 1000; i++) observe(tree, [fresh++, 1, 2]);
    expect(tree.size).toBe(50);
    expect(tree.statistics.uncounted).toBeGreaterThan(0);
    const roomy = new HotnessTree(options);
    for (let i = 0; i < 1000; i++) observe(roomy, [fresh++, 1, 2]);
    expect(roomy.size).toBe(options.window);
    expect(roomy.statistics.uncounted).toBe(0);
  });

  it('bears keys that are not chained', () => {
    const tree = new HotnessTree({ ...options, window: 5, minSamples: 1 });
    fc.assert(
      fc.property(fc.array(fc.array(fc.nat(3), { minLength: 1, maxLength: 4 })), (list) => {
        for (const ids of list) {
          const keys = Uint32Array.from(ids.flatMap((id) => [id, id]));
          expect(tree.depthOf(keys, 0, ids.length)).toBeLessThanOrEqual(ids.length);
          tree.observe(keys, 0, ids.length, 1);
          expect(tree.size).toBeLessThanOrEqual(4);
        }
      }),
    );
  });

  it('keeps its newest requests when the number of instances changes', () => {
    const tree = new HotnessTree(options);
    for (let i = 0; i < 60; i++) observe(tree, [1, 2, 3, fresh++]);
    tree.rescale({ ...options, window: 40 });
    expect(tree.depthOf(...key(hot))).toBe(4);
    tree.rescale({ ...options, window: 400 });
    expect(tree.depthOf(...key(hot))).toBe(4);
    for (let i = 0; i < 360; i++) observe(tree, [fresh++]);
    expect(tree.depthOf(...key(hot))).toBe(1);
    expect(() => tree.rescale({ ...options, window: 0 })).toThrow(/window of the hotness tree is 0/);
  });

  it('takes over what other trees extend, as long as they do', () => {
    const one = new HotnessTree(options);
    const two = new HotnessTree(options);
    for (let i = 0; i < 60; i++) observe(one, [1, 2, 3, fresh++]);
    // Too few of them here for a key of its own, but the prefix is known.
    for (let i = 0; i < 60; i++) observe(two, i < 10 ? [1, 2, 3, fresh++] : [fresh++]);
    expect([one.depthOf(...key(hot)), two.depthOf(...key(hot))]).toEqual([4, 1]);
    two.adoptExtended(one.extendedKeys());
    expect(two.depthOf(...key(hot))).toBe(4);
    expect(two.extendedKeys()).toHaveLength(0);
    one.adoptExtended(two.extendedKeys());
    two.adoptExtended(new Uint32Array());
    expect([one.depthOf(...key(hot)), two.depthOf(...key(hot))]).toEqual([4, 1]);
  });

  it('gives the same candidates at a router that sees a prompt for the first time', () => {
    const routers = [0, 1].map(() => {
      const settings = { blockTokens: 16, prefillSPerToken: 0.0001, sloS: 5, dispatchedTokensMax: 1e6 };
      const router = new Router(settings, new DualMapPolicy(paperDualMap), { dispatch: () => undefined });
      for (let i = 0; i < 8; i++) router.addInstance({ name: `i${i}`, cacheTokens: 1e6 }, 0);
      return router;
    });
    const [busy, idle] = routers as [Router, Router];
    const submit = (router: Router, ids: readonly number[]): RoutedRequest => {
      const [keys, firstBlock, blocks] = key(ids);
      const request = router.submit({ id: 1, keys, firstBlock, blocks, promptTokens: 16 * blocks + 1 }, 0);
      router.cancelled(request, 0);
      return request;
    };
    for (let i = 0; i < 60; i++) submit(busy, [1, 2, 3, fresh++]);
    idle.policy.adoptExtended!(busy.policy.extendedKeys!());
    expect(busy.policy.extendedKeys!().length).toBeGreaterThan(0);
    for (let i = 0; i < 20; i++) {
      const ids = [1, 2, 3, fresh++];
      const pairs = routers.map((router) => {
        const { primary, secondary } = submit(router, ids);
        return [primary?.name, secondary?.name];
      });
      expect(pairs[0]).toEqual(pairs[1]);
    }
  });

  it('shrinks though others wait for it to', () => {
    const trees = [new HotnessTree(options), new HotnessTree(options)];
    for (const tree of trees) for (let i = 0; i < 60; i++) observe(tree, [1, 2, 3, fresh++]);
    const exchange = (): void => {
      const told = trees.map((tree) => tree.extendedKeys());
      trees[0]!.adoptExtended(told[1]!);
      trees[1]!.adoptExtended(told[0]!);
    };
    exchange();
    for (const tree of trees) for (let i = 0; i < options.window; i++) observe(tree, [fresh++]);
    for (const tree of trees) tree.depthOf(...key(hot));
    exchange();
    expect(trees.map((tree) => tree.depthOf(...key(hot)))).toEqual([1, 1]);
  });
});
