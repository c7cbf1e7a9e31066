import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  DualMapPolicy,
  HotnessTree,
  LateLanePolicy,
  lateLane,
  paperDualMap,
  Router,
  type RoutedRequest,
  type RoutingPolicy,
} from '../../src/router/index.js';
import { keyHash } from '../../src/router/sub-key.js';
import { input, keysOf } from './support.js';

const scale = {
  window: 400,
  extendAbove: 0.05,
  shrinkBelow: 0.02,
  minSamples: 5,
  maxNodes: 4000,
  spread: { subKeyShare: 1 / 64, subKeysMax: 32 },
};
const requestOf = (ids: readonly number[]): RoutedRequest => input(ids) as RoutedRequest;

describe('sub-keys of a hot prefix', () => {
  it('are a power of two, one to four times what its share asks for, or unlimited', () => {
    // Which of ten requests have the prefix, in periods.
    const shares = fc.array(fc.integer({ min: 1, max: 10 }), { minLength: 1, maxLength: 8 });
    fc.assert(
      fc.property(shares, (periods) => {
        const tree = new HotnessTree(scale);
        const window: boolean[] = [];
        let fresh = 100;
        for (const tenths of periods) {
          for (let i = 0; i < 200; i++) {
            const isHot = i % 10 < tenths;
            const ids = isHot ? [1, fresh++] : [fresh++];
            const depth = tree.depthOf(keysOf(ids), 0, ids.length);
            const share = window.filter(Boolean).length / window.length;
            if (depth === 2 && isHot) {
              const wanted = Math.max(1, 64 * share);
              const { subKeys } = tree;
              if (subKeys === 0) expect(4 * wanted).toBeGreaterThan(scale.spread.subKeysMax);
              else {
                expect(Number.isInteger(Math.log2(subKeys))).toBe(true);
                expect(subKeys).toBeGreaterThanOrEqual(wanted - 1e-9);
                expect(subKeys).toBeLessThanOrEqual(4 * wanted);
              }
            } else expect(tree.subKeys).toBe(0);
            tree.observe(keysOf(ids), 0, ids.length, 1);
            window.push(isHot);
            if (window.length > scale.window) window.shift();
          }
        }
      }),
      { numRuns: 20 },
    );
  });

  it('hash prompts that go on alike alike, and all prompts to no more hashes than there are', () => {
    const hashes = new Set<number>();
    for (let i = 0; i < 500; i++) hashes.add(keyHash(requestOf([1, 2, 1000 + i]), 3, 8, 42));
    expect(hashes.size).toBe(8);
    expect(keyHash(requestOf([1, 2, 3, 4]), 3, 8, 42)).toBe(keyHash(requestOf([1, 2, 3, 5]), 3, 8, 42));
    // Another prefix has sub-keys of its own.
    expect(hashes.has(keyHash(requestOf([1, 7, 1000]), 3, 8, 42))).toBe(false);
    const unlimited = new Set(
      Array.from({ length: 500 }, (_, i) => keyHash(requestOf([1, 2, 1000 + i]), 3, 0, 42)),
    );
    expect(unlimited.size).toBe(500);
  });

  it('keep a prefix off most instances of a large cluster, which without them all come to hold it', () => {
    const key = {
      share: 'requests',
      extendAbove: 0.5,
      shrinkBelow: 0.25,
      relative: 'instances',
      trees: 1,
    } as const;
    const policies: readonly [RoutingPolicy, RoutingPolicy][] = [
      [
        new DualMapPolicy({ ...paperDualMap, key }),
        new DualMapPolicy({ ...paperDualMap, key: { ...key, subKeyShare: 0.25 } }),
      ],
      [new LateLanePolicy({ ...lateLane, subKeyShare: undefined }), new LateLanePolicy(lateLane)],
    ];
    for (const [unlimited, limited] of policies) {
      const [many, few] = [holders(unlimited), holders(limited)];
      expect(few).toBeLessThanOrEqual(32);
      expect(many).toBeGreaterThan(2 * few);
    }
  });
});

/** Of 128 instances those that are given prompts with a prefix that a fiftieth of all begin with. */
function holders(policy: RoutingPolicy): number {
  const options = { blockTokens: 512, prefillSPerToken: 1e-9, sloS: 5, dispatchedTokensMax: 1e9 };
  const router = new Router(options, policy, { dispatch: () => undefined });
  for (let i = 0; i < 128; i++) router.addInstance({ name: `i${i}`, cacheTokens: 64 * 512 }, 0);
  const prefix = [1, 2, 3];
  const seen = new Set<string>();
  for (let i = 0; i < 40_000; i++) {
    const isHot = i % 50 === 0;
    const request = router.submit(input(isHot ? [...prefix, 1000 + i] : [1000 + i]), 0);
    if (isHot && i > 10_000) seen.add(request.instance.name);
    router.finished(request, 0);
  }
  return seen.size;
}
