import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { selectSessions } from '../../src/trace/index.js';
import { fixed } from './support.js';

const ids = fc.uniqueArray(fc.string({ minLength: 1, maxLength: 6 }), { maxLength: 60 });

/** The rule in one line: sort by hash, take the first. */
function bySorting(all: readonly string[], count: number, seed: number): string[] {
  const hash = (id: string): string => createHash('sha256').update(`${seed}\0select\0${id}`).digest('hex');
  return [...all].sort((a, b) => (hash(a) < hash(b) ? -1 : 1)).slice(0, count);
}

async function select(all: readonly string[], count: number, seed: number): Promise<string[]> {
  const chosen = await selectSessions(
    all.map((id) => ({ id })),
    { count, seed },
  );
  return chosen.map(({ id }) => id);
}

describe('selectSessions', () => {
  it('equals sorting by hash, in any order of the input', async () => {
    const cases = fc.record({ all: ids, count: fc.integer({ min: 1, max: 70 }), seed: fc.nat() });
    await fc.assert(
      fc.asyncProperty(cases, async ({ all, count, seed }) => {
        const expected = bySorting(all, count, seed);
        expect(await select(all, count, seed)).toEqual(expected);
        expect(await select([...all].reverse(), count, seed)).toEqual(expected);
      }),
      fixed,
    );
  });

  it('chooses differently by seed, and evenly', async () => {
    const all = Array.from({ length: 100 }, (_, i) => `s${i}`);
    const chosen = new Map(all.map((id) => [id, 0]));
    for (let seed = 0; seed < 200; seed++) {
      for (const id of await select(all, 10, seed)) chosen.set(id, (chosen.get(id) ?? 0) + 1);
    }
    // Binomial(200, 0.1): mean 20, deviation 4.2; five deviations either way.
    expect(Math.min(...chosen.values())).toBeGreaterThan(0);
    expect(Math.max(...chosen.values())).toBeLessThan(42);
  });
});
