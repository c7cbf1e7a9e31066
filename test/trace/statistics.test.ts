import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { loadWorkload, traceStatistics } from '../../src/trace/index.js';
import { summarize } from '../../src/trace/statistics.js';
import { fmix32 } from '../../src/trace/mix.js';
import { BlockCache, BlockChain } from '../../src/trace/block-cache.js';
import {
  agentSample,
  conversationSample,
  fixed,
  namedTokens,
  rawSession,
  rawSessions,
  sessionOf,
  workloadOf,
  type RawSession,
} from './support.js';

/** Hits by comparing whole prefixes as text: no chain, no table, no shortcut. */
function plainHits(list: readonly RawSession[], blockTokens: number): { own: number; any: number } {
  const any = new Set<string>();
  const hits = { own: 0, any: 0 };
  for (const raw of list) {
    const own = new Set<string>();
    const count = (known: Set<string>, prompt: string[]): number => {
      let hit = 0;
      while (hit + blockTokens <= prompt.length && known.has(prompt.slice(0, hit + blockTokens).join()))
        hit += blockTokens;
      return hit;
    };
    for (const [prompt, reply] of namedTokens(raw)) {
      hits.own += count(own, prompt);
      hits.any += count(any, prompt);
      const cached = [...prompt, ...reply.slice(0, -1)];
      for (let end = blockTokens; end <= cached.length; end += blockTokens) {
        own.add(cached.slice(0, end).join());
        any.add(cached.slice(0, end).join());
      }
    }
  }
  return hits;
}

describe('hit rates', () => {
  it('are those of comparing whole prefixes, and do not depend on the order of sessions', async () => {
    await fc.assert(
      fc.asyncProperty(rawSessions, fc.constantFrom(1, 2, 4, 7), async (list, blockTokens) => {
        const sessions = list.map(sessionOf);
        const statistics = await traceStatistics(workloadOf(sessions), { blockTokens });
        const expected = plainHits(list, blockTokens);
        expect(statistics.inSessionHit.hit).toBe(expected.own);
        expect(statistics.infiniteCacheHit.hit).toBe(expected.any);
        const reversed = await traceStatistics(workloadOf([...sessions].reverse()), { blockTokens });
        expect(reversed.infiniteCacheHit).toEqual(statistics.infiniteCacheHit);
      }),
      fixed,
    );
  });

  it('of the agent sample follow from its lengths', async () => {
    const raw = readFileSync(agentSample, 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as RawSession);
    let [own, recorded, prompt] = [0, 0, 0];
    for (const { turns } of raw) {
      for (const [index, turn] of turns.entries()) {
        prompt += turn.in;
        recorded += turn.hit ?? 0;
        const before = turns[index - 1];
        if (before === undefined) continue;
        const grown = turn.in - before.in;
        const kept =
          grown >= before.out ? before.in + before.out - 1 : grown >= 0 ? before.in : (turn.hit ?? 0);
        own += Math.floor(kept / 64) * 64;
      }
    }
    const statistics = await traceStatistics(await loadWorkload(agentSample));
    expect(statistics.inSessionHit).toEqual({ hit: own, total: prompt, rate: own / prompt });
    expect(statistics.traceHit).toEqual({
      unit: 'tokens',
      hit: recorded,
      total: prompt,
      rate: recorded / prompt,
    });
    expect(statistics.infiniteCacheHit.hit).toBeGreaterThan(own);
  });

  it('of the conversation sample follow from its hash ids', async () => {
    const seen = new Set<number>();
    let [hit, total, hitTokens] = [0, 0, 0];
    for (const line of readFileSync(conversationSample, 'utf8').trim().split('\n')) {
      const { hash_ids: ids, input_length: input } = JSON.parse(line) as {
        hash_ids: number[];
        input_length: number;
      };
      let leading = 0;
      while (leading < ids.length && seen.has(ids[leading] ?? -1)) leading++;
      ids.forEach((id) => seen.add(id));
      hit += leading;
      total += ids.length;
      hitTokens += Math.min(leading, Math.floor(input / 512)) * 512;
    }
    const workload = await loadWorkload(conversationSample);
    const statistics = await traceStatistics(workload, { blockTokens: 512 });
    expect(statistics.traceHit).toEqual({ unit: 'blocks', hit, total, rate: hit / total });
    expect(statistics.infiniteCacheHit.hit).toBe(hitTokens);
    expect(statistics.inSessionHit.hit).toBe(0);
    expect(statistics).toMatchObject({ traceDurationS: 72, sessionDurationS: null, appendTokens: null });
  });
});

describe('traceStatistics', () => {
  it('summarises lengths and times', async () => {
    const list = [
      rawSession(
        'a',
        [
          { in: 10, out: 2 },
          { t: 6.5, in: 20, out: 4, hit: 8, think: 3 },
        ],
        { tool_tokens: 4 },
      ),
      rawSession('b', [{ in: 30, out: 0 }], { tool_tokens: 4, system_tokens: 6 }),
    ];
    const statistics = await traceStatistics(workloadOf(list.map(sessionOf)));
    expect(statistics).toMatchObject({
      sessions: 2,
      turns: { total: 3, mean: 1.5 },
      promptTokens: { count: 3, total: 60, mean: 20, median: 20, p90: 28 },
      firstPromptTokens: { total: 40 },
      appendTokens: { count: 1, total: 8 },
      outputTokens: { total: 6 },
      sharedPrefixTokens: { total: 14, median: 7 },
      sharedPrefixes: 2,
      blockTokens: 64,
      traceUncachedTokens: { total: 52 },
      traceDurationS: null,
      sessionDurationS: { count: 1, total: 6.5 },
      thinkS: { count: 1, total: 3 },
    });
  });

  it('has no account of hits where the trace has not recorded all', async () => {
    const list = [rawSession('a', [{ hit: 0 }, { in: 20, hit: null }])];
    expect(await traceStatistics(workloadOf(list.map(sessionOf)))).toMatchObject({
      traceHit: null,
      traceUncachedTokens: null,
    });
  });

  it('reports progress, and stops when aborted', async () => {
    const workload = await loadWorkload(agentSample);
    const done: number[] = [];
    await traceStatistics(workload, { onSession: (count) => done.push(count) });
    expect(done).toEqual(Array.from({ length: 20 }, (_, i) => i + 1));
    const controller = new AbortController();
    const onSession = (): void => controller.abort();
    await expect(traceStatistics(workload, { signal: controller.signal, onSession })).rejects.toMatchObject({
      code: 'CANCELLED',
      details: { session: 1 },
    });
  });

  it('refuses impossible block sizes', async () => {
    const workload = workloadOf([sessionOf(rawSession('a', [{}]))]);
    for (const blockTokens of [0, 1.5, 65537]) {
      await expect(traceStatistics(workload, { blockTokens })).rejects.toMatchObject({
        code: 'INVALID_ARGUMENT',
      });
    }
  });
});

describe('summarize', () => {
  it('interpolates quantiles and sorts by value', () => {
    expect(summarize([100, 9, 20, 4])).toMatchObject({ count: 4, total: 133, mean: 33.25, median: 14.5 });
    expect(summarize([100, 9, 20, 4]).p90).toBeCloseTo(76, 9);
    expect(summarize([5])).toEqual({ count: 1, total: 5, mean: 5, median: 5, p90: 5 });
  });
});

describe('BlockCache', () => {
  it('is a map, also while it grows and where low halves collide', () => {
    const cache = new BlockCache();
    const map = new Map<string, number>();
    const wrong: number[] = [];
    for (let i = 0; i < 30_000; i++) {
      const [low, high] = [fmix32(i % 9973), (i * i) % 7];
      if (cache.ownerOf(low, high) !== (map.get(`${low} ${high}`) ?? -1)) wrong.push(i);
      cache.store(low, high, i);
      map.set(`${low} ${high}`, i);
    }
    for (const [key, owner] of map) {
      const [low = 0, high = 0] = key.split(' ').map(Number);
      if (cache.ownerOf(low, high) !== owner) wrong.push(owner);
    }
    expect(wrong).toEqual([]);
    expect(cache.size).toBe(map.size);
  });
});

describe('BlockChain', () => {
  it('gives a key that depends on every token up to the block, in both halves', () => {
    const tokens = Uint32Array.from({ length: 12 }, (_, i) => i);
    const keys = (): string[] => {
      const chain = new BlockChain(4, 12);
      chain.update(tokens, 0, 3);
      return [...chain.low, ...chain.high].map(String);
    };
    const before = keys();
    expect(new Set(before).size).toBe(6);
    for (let i = 0; i < 12; i++) {
      tokens[i] = (tokens[i] ?? 0) ^ 0x80000000;
      const changed = keys().map((key, at) => key !== before[at]);
      tokens[i] = (tokens[i] ?? 0) ^ 0x80000000;
      const expected = [0, 1, 2].map((block) => block >= Math.floor(i / 4));
      expect(changed).toEqual([...expected, ...expected]);
    }
  });
});
