import { hash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { BlockView, decodeBatch } from '../../src/kv-events/index.js';
import { batch, blockTokens, keyed, keys, stored } from './support.js';

function newView(blocksMax = 10_000): BlockView {
  return new BlockView({ chain: keys, model: 'emulated', blockTokens, blocksMax });
}

function apply(view: BlockView, ...events: unknown[]): void {
  for (const event of decodeBatch(batch(events))) view.apply(event);
}

function heldOf(view: BlockView, ids: readonly number[]): number {
  const { keys: itsKeys, blocks } = keyed(ids);
  return view.held.match(itsKeys, 0, blocks);
}

const ids = Array.from({ length: 32 }, (_, i) => 100 + i);

/** Hashes of the engine's blocks: names of the prefixes that they end. */
function hashes(of: readonly number[], size: number): Buffer[] {
  return Array.from({ length: of.length / size }, (_, i) =>
    hash('sha256', of.slice(0, (i + 1) * size).join(','), 'buffer'),
  );
}

/** An engine's cache with what it publishes: a tree of blocks that loses its leaves. */
class Engine {
  readonly view = newView();
  readonly #held = new Map<string, { parent: string | null; hash: Buffer }>();

  constructor(readonly size: number) {
    this.view.reset(true);
  }

  store(of: readonly number[]): void {
    const all = hashes(of, this.size);
    for (const [i, hash] of all.entries()) {
      const name = hash.toString('latin1');
      if (this.#held.has(name)) continue;
      const parent = all[i - 1] ?? null;
      this.#held.set(name, { parent: parent?.toString('latin1') ?? null, hash });
      apply(this.view, stored([hash], parent, of.slice(i * this.size, (i + 1) * this.size), this.size));
    }
  }

  evict(which: number): void {
    const parents = new Set([...this.#held.values()].map(({ parent }) => parent));
    const leaves = [...this.#held].filter(([name]) => !parents.has(name));
    const leaf = leaves[which % Math.max(1, leaves.length)];
    if (leaf === undefined) return;
    this.#held.delete(leaf[0]);
    apply(this.view, ['BlockRemoved', [leaf[1].hash], 'GPU']);
  }

  /** Whole blocks of the router that it holds of a prompt. */
  blocksOf(of: readonly number[]): number {
    const missing = hashes(of, this.size).findIndex((hash) => !this.#held.has(hash.toString('latin1')));
    const held = missing === -1 ? of.length / this.size : missing;
    return Math.floor((held * this.size) / blockTokens);
  }
}

describe('BlockView', () => {
  it('agrees with the cache of an engine, whatever is stored and evicted', () => {
    const prompt = fc
      .array(fc.constantFrom(0, 1), { minLength: 1, maxLength: 4 })
      .map((blocks) => blocks.flatMap((block) => Array.from({ length: blockTokens }, (_, i) => block * i)));
    const step = fc.oneof(prompt, fc.nat({ max: 20 }));
    fc.assert(
      fc.property(
        fc.constantFrom(1, 2, 4, 8),
        fc.array(step, { maxLength: 40 }),
        prompt,
        (size, steps, asked) => {
          const engine = new Engine(size);
          for (const each of steps) {
            if (typeof each === 'number') engine.evict(each);
            else engine.store(each);
          }
          expect(heldOf(engine.view, asked)).toBe(engine.blocksOf(asked));
          expect(engine.view.held.isWhole).toBe(true);
        },
      ),
      { numRuns: 60 },
    );
  });

  it('takes blocks in pieces that end within its own', () => {
    const view = newView();
    apply(view, stored([1], null, ids.slice(0, 4), 4));
    expect(heldOf(view, ids)).toBe(0);
    apply(view, stored([2, 3], 1, ids.slice(4, 12), 4), stored([4], 3, ids.slice(12, 16), 4));
    expect(heldOf(view, ids)).toBe(2);
  });

  it('shares keys with prompts of ids alone, without tenant and salt', () => {
    const view = newView();
    apply(view, stored([1], null, ids.slice(0, 8), 8));
    expect(keyed(ids).reportable).toBe(true);
    for (const rest of [{ salt: 'mine' }, { tenant: 'a' }]) {
      const other = keyed(ids, rest);
      expect(other.reportable).toBe(false);
      expect(view.held.match(other.keys, 0, other.blocks)).toBe(0);
    }
  });

  it('holds a block until its last copy is gone', () => {
    const view = newView();
    const event = stored([1], null, ids.slice(0, 8), 8);
    apply(view, event, event, ['BlockRemoved', [1]]);
    expect(heldOf(view, ids)).toBe(1);
    apply(view, ['BlockRemoved', [1]]);
    expect(heldOf(view, ids)).toBe(0);
    apply(view, event, event, { type: 'BlockRemoved', block_hashes: [1], remaining_copy_counts: [0] });
    expect([heldOf(view, ids), view.size]).toEqual([0, 0]);
  });

  it('leaves out blocks with keys of their own, and all behind them', () => {
    const view = newView();
    const extra = { extra_keys: [null, ['image']] };
    apply(view, stored([1, 2], null, ids.slice(0, 16), 8, extra), stored([3], 2, ids.slice(16, 24), 8));
    expect([heldOf(view, ids), view.size]).toEqual([1, 1]);
  });

  it('looks at one group of caches, whose blocks stand for all before them', () => {
    const view = newView();
    const group = (index: number, kind: string): Record<string, unknown> => ({
      group_idx: index,
      kv_cache_spec_kind: kind,
    });
    apply(
      view,
      stored([1], null, ids.slice(0, 8), 8, group(0, 'sliding_window')),
      stored([1], null, ids.slice(0, 8), 8, group(1, 'full_attention')),
      { type: 'BlockRemoved', block_hashes: [1], group_idx: 0 },
    );
    expect(heldOf(view, ids)).toBe(1);
    apply(view, { type: 'BlockRemoved', block_hashes: [1], group_idx: 1 });
    expect(heldOf(view, ids)).toBe(0);
  });

  it('knows nothing rather than too much: beyond its limit, and with blocks that do not fit', () => {
    const view = newView(3);
    view.reset(true);
    apply(view, stored([1, 2, 3], null, ids.slice(0, 24), 8));
    expect([view.held.isWhole, heldOf(view, ids)]).toEqual([true, 3]);
    apply(view, stored([4], 3, ids.slice(24), 8));
    expect([view.held.isWhole, view.size, view.held.size]).toEqual([false, 0, 0]);
    view.reset(true);
    apply(view, stored([1], null, ids.slice(0, 3), 3));
    expect([view.held.isWhole, view.size]).toEqual([false, 0]);
    apply(view, ['AllBlocksCleared']);
    expect(view.held.isWhole).toBe(true);
  });
});
