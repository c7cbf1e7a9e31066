import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { loadWorkload, SessionTokens } from '../../src/trace/index.js';
import { fillTokens, fmix32, namedKey } from '../../src/trace/mix.js';
import {
  agentSample,
  conversationSample,
  fixed,
  namedTokens,
  rawSession,
  rawSessions,
  sessionOf,
} from './support.js';

describe('SessionTokens', () => {
  it('makes tokens equal exactly where the identity rule says so', () => {
    fc.assert(
      fc.property(rawSessions, fc.nat(), (list, seed) => {
        const tokenOf = new Map<string, number>();
        for (const raw of list) {
          const tokens = new SessionTokens(sessionOf(raw), seed);
          for (const [index, [prompt, reply]] of namedTokens(raw).entries()) {
            const made = [...tokens.promptOf(index), ...tokens.replyOf(index)];
            expect(made).toHaveLength(prompt.length + reply.length);
            [...prompt, ...reply].forEach((name, at) => {
              const known = tokenOf.get(name) ?? made[at] ?? NaN;
              tokenOf.set(name, known);
              expect(made[at]).toBe(known);
            });
          }
        }
        expect(new Set(tokenOf.values()).size).toBe(tokenOf.size);
      }),
      fixed,
    );
  });

  it('gives the same tokens in any order of asking, and others for another seed', () => {
    fc.assert(
      fc.property(rawSessions, fc.infiniteStream(fc.nat()), (list, order) => {
        for (const raw of list) {
          const session = sessionOf(raw);
          const wandering = new SessionTokens(session, 3);
          for (const pick of order.take(8)) {
            const index = pick % session.turns.length;
            expect(wandering.promptOf(index)).toEqual(new SessionTokens(session, 3).promptOf(index));
            expect(wandering.promptOf(index)).not.toEqual(new SessionTokens(session, 4).promptOf(index));
          }
        }
      }),
      { ...fixed, numRuns: 30 },
    );
  });

  it('hands out copies and, on demand, a view', () => {
    const tokens = new SessionTokens(
      sessionOf(
        rawSession('x', [
          { in: 10, out: 5 },
          { in: 12, out: 1 },
        ]),
      ),
      0,
    );
    const prompt = tokens.promptOf(0);
    const reply = tokens.replyOf(0);
    const before = [...prompt, ...reply];
    const view = tokens.conversationOf(0);
    expect([...view]).toEqual(before);
    tokens.conversationOf(1);
    expect([...prompt, ...reply]).toEqual(before);
    expect([...view.subarray(0, 10)]).toEqual(before.slice(0, 10));
    expect([...view]).not.toEqual(before);
  });

  it('refuses a turn that the session does not have', () => {
    const tokens = new SessionTokens(sessionOf(rawSession('x', [{}])), 0);
    for (const turn of [-1, 1, 0.5]) expect(() => tokens.promptOf(turn)).toThrow(/has no turn .*0 to 0/);
  });

  it('shares hashed blocks, to the token and no further', async () => {
    const { sessions } = await loadWorkload(conversationSample);
    const byBlock = new Map<number, string>();
    const blocks = new Set<string>();
    const replies = new Set<number>();
    for (const session of sessions.slice(0, 60)) {
      const tokens = new SessionTokens(session, 7);
      const { identity } = session.turns[0] ?? {};
      if (identity?.kind !== 'blocks') throw new Error('not hashed');
      const prompt = tokens.promptOf(0);
      identity.hashIds.forEach((id, block) => {
        const text = prompt.subarray(block * 512, (block + 1) * 512).join();
        expect(byBlock.get(id) ?? text).toBe(text);
        byBlock.set(id, text);
        blocks.add(text);
      });
      replies.add(tokens.replyOf(0)[0] ?? 0);
    }
    expect(blocks.size).toBe(byBlock.size);
    expect(replies.size).toBe(60);
  });

  it('shares prefixes between real sessions by their lengths alone', async () => {
    const { sessions } = await loadWorkload(agentSample);
    const prompts = sessions.map((session) => new SessionTokens(session, 0).promptOf(0));
    let pairs = 0;
    sessions.forEach((a, i) =>
      sessions.slice(0, i).forEach((b, j) => {
        const [tools, otherTools] = [a.prefix[0], b.prefix[0]];
        const [system, otherSystem] = [a.prefix[1], b.prefix[1]];
        let common = 0;
        while (prompts[i]?.[common] === prompts[j]?.[common]) common++;
        let expected = tools?.tokens === otherTools?.tokens ? (tools?.tokens ?? 0) : 0;
        if (expected > 0 && system?.tokens === otherSystem?.tokens) expected += system?.tokens ?? 0;
        expect(common).toBe(expected);
        if (expected > 0) pairs++;
      }),
    );
    expect(pairs).toBeGreaterThan(0);
  });
});

describe('the mix function', () => {
  it('is the finalizer of MurmurHash3', () => {
    // Values of Appleby's reference implementation.
    expect(fmix32(0)).toBe(0);
    expect(fmix32(1)).toBe(0x514e28b7);
    expect(fmix32(0xffffffff)).toBe(0x81f16f39);
  });

  it('gives distinct tokens, with every bit set half of the time', () => {
    const tokens = new Uint32Array(1 << 16);
    fillTokens(tokens, 0, tokens.length, namedKey(0, 'session', 'x'), 0);
    expect(new Set(tokens).size).toBe(tokens.length);
    for (let bit = 0; bit < 32; bit++) {
      let ones = 0;
      for (const token of tokens) ones += (token >>> bit) & 1;
      // Five deviations of a fair coin.
      expect(Math.abs(ones - tokens.length / 2)).toBeLessThan(5 * Math.sqrt(tokens.length / 4));
    }
  });
});
