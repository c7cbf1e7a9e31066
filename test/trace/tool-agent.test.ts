import { describe, expect, it } from 'vitest';
import { toolAgentDescription, toolAgentSessions } from '../../src/trace/index.js';

const { requests, groups } = toolAgentDescription;

describe('toolAgentSessions', () => {
  it('is what the description says, for any seed', () => {
    for (const seed of [0, 7]) {
      const turns = toolAgentSessions(seed).map((session) => session.turns[0]!);
      const seen = new Set<number>();
      let [prompt, output, hit, half] = [0, 0, 0, 0];
      const begins = new Map<number, number>();
      for (const { promptTokens, outputTokens, identity } of turns) {
        const ids = identity.kind === 'blocks' ? identity.hashIds : [];
        expect(ids).toHaveLength(Math.ceil(promptTokens / 512));
        let blocks = 0;
        while (blocks < ids.length && seen.has(ids[blocks]!)) blocks++;
        for (const id of ids) seen.add(id);
        prompt += promptTokens;
        output += outputTokens;
        hit += Math.min(512 * blocks, promptTokens);
        if (2 * blocks >= ids.length) half++;
        begins.set(ids[0]!, (begins.get(ids[0]!) ?? 0) + 1);
      }
      expect(turns).toHaveLength(requests);
      expect(Math.abs(prompt / requests / toolAgentDescription.meanPromptTokens - 1)).toBeLessThan(0.02);
      expect(Math.abs(output / requests / toolAgentDescription.meanOutputTokens - 1)).toBeLessThan(0.03);
      expect(Math.abs(hit / prompt - toolAgentDescription.prefixShare)).toBeLessThan(0.01);
      expect(Math.abs(half / requests - toolAgentDescription.halfSharedRequests)).toBeLessThan(0.01);
      const shares = [...begins.values()].map((count) => count / requests).sort((a, b) => b - a);
      for (const [i, share] of groups
        .map((group) => group.share)
        .sort((a, b) => b - a)
        .entries()) {
        expect(Math.abs(shares[i]! - share)).toBeLessThan(0.01);
      }
      const times = turns.map(({ arrivalMs }) => arrivalMs!);
      expect(times).toEqual([...times].sort((a, b) => a - b));
      expect(times.at(-1)).toBeLessThan(toolAgentDescription.durationS * 1000);
    }
  });
});
