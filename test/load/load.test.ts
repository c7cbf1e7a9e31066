import { describe, expect, it } from 'vitest';
import { planLoad, PromptMaker, runLoad, summaryText, type LoadOptions } from '../../src/load/index.js';
import { EmulatedReplica } from '../../src/replica/index.js';
import type { Session } from '../../src/trace/index.js';

const session = (id: number, hashIds: number[], arrivalMs: number | null = null): Session => ({
  id: `s${id}`,
  prefix: [],
  turns: [
    {
      promptTokens: 64 * hashIds.length,
      outputTokens: 3,
      traceHitTokens: null,
      arrivalMs,
      thinkMs: null,
      identity: { kind: 'blocks', blockTokens: 64, hashIds },
    },
  ],
});
const sessions = [session(0, [1, 2, 3]), session(1, [1, 2, 4]), session(2, [5])];

const options: LoadOptions = {
  url: '',
  model: 'emulated',
  endpoint: 'completions',
  vocabulary: null,
  qps: 200,
  arrivals: 'poisson',
  seed: 3,
  maxPromptTokens: 1000,
  maxOutputTokens: 100,
  sloS: 5,
  concurrency: 8,
};

describe('planLoad', () => {
  it('sends at the rate, in order, and the same with the same seed', () => {
    const many = Array.from({ length: 2000 }, (_, i) => session(i, [i]));
    const plan = planLoad(many, options);
    expect(plan).toEqual(planLoad(many, options));
    expect(plan.at(-1)!.atS).toBeGreaterThan(9);
    expect(plan.at(-1)!.atS).toBeLessThan(11);
    expect(plan.every(({ atS }, i) => i === 0 || atS >= plan[i - 1]!.atS)).toBe(true);
  });

  it("needs the trace's times where they are asked for", () => {
    expect(() => planLoad(sessions, { ...options, arrivals: 'trace' })).toThrow(/poisson/);
    const timed = [session(0, [1], 0), session(1, [1], 1000), session(2, [1], 3000)];
    const plan = planLoad(timed, { ...options, arrivals: 'trace', qps: 3 });
    expect(plan[0]!.atS).toBe(0);
    expect(plan[2]!.atS).toBeLessThanOrEqual(1);
  });
});

describe('PromptMaker', () => {
  it('shares what the trace shares, four bytes a token', () => {
    const plan = planLoad(sessions, options);
    const maker = new PromptMaker(sessions, 3, null);
    const [one, two, three] = plan.map((request) => maker.promptOf(request) as string);
    expect(one!.length).toBe(4 * 192);
    expect(one!.slice(0, 4 * 128)).toBe(two!.slice(0, 4 * 128));
    expect(one!.slice(4 * 128)).not.toBe(two!.slice(4 * 128));
    expect(three!.slice(0, 40)).not.toBe(one!.slice(0, 40));
    const ids = new PromptMaker(sessions, 3, 1000).promptOf(plan[0]!) as number[];
    expect([ids.length, Math.max(...ids) < 1000]).toEqual([192, true]);
  });
});

describe('runLoad', () => {
  it('measures what the server does, whole answers and failures', async () => {
    const replica = new EmulatedReplica({ port: 0, tokenMs: 2 });
    await replica.start();
    try {
      const summary = await runLoad(sessions, { ...options, url: replica.url });
      expect(summary).toMatchObject({
        complete: true,
        succeeded: 3,
        failed: 0,
        inputTokens: 192 + 192 + 64,
        cachedTokens: 128,
        outputTokens: 9,
        attainment: 1,
      });
      // 64 tokens at 0.16 ms are the least that a first token takes here.
      expect(summary.ttftMs!.p50).toBeGreaterThan(9);
      expect(summary.e2elMs!.p50).toBeGreaterThan(summary.ttftMs!.p50);
      const text = summaryText(summary);
      for (const line of [
        'Successful requests:',
        'P99 TTFT (ms):',
        'Median TPOT (ms):',
        'P99 ITL (ms):',
        'E2EL',
      ]) {
        expect(text).toContain(line);
      }
      replica.setFault({ kind: 'error' });
      const failing = await runLoad(sessions, { ...options, url: replica.url });
      expect(failing).toMatchObject({ succeeded: 0, failed: 3, attainment: 0, ttftMs: null });
      expect(failing.errors[0]).toMatchObject({ count: 3 });
      replica.setFault({ kind: 'die', after_tokens: 1 });
      expect(await runLoad(sessions, { ...options, url: replica.url })).toMatchObject({
        succeeded: 0,
        failed: 3,
      });
    } finally {
      await replica.close();
    }
  });
});
