import { describe, expect, it } from 'vitest';
import { EmulatedEngine } from '../../src/replica/index.js';

const options = { blockTokens: 4, cacheTokens: 16, prefillSPerToken: 1e-5, tokenMs: 1 };
const prompt = (id: number, blocks: number): { keys: Uint32Array; blocks: number; promptTokens: number } => ({
  keys: Uint32Array.from({ length: 2 * blocks }, (_, i) => 1000 * id + i),
  blocks,
  promptTokens: 4 * blocks + 1,
});

function run(engine: EmulatedEngine, id: number, blocks: number, outputTokens: number): Promise<number[]> {
  return new Promise((resolve) => {
    const seen: number[] = [];
    const job = engine.submit(prompt(id, blocks), outputTokens, {
      token: (index) => seen.push(index),
      end: () => resolve([job.cachedTokens, ...seen]),
    });
  });
}

describe('EmulatedEngine', () => {
  it('computes what is not cached, and evicts what was used longest ago', async () => {
    const engine = new EmulatedEngine(options);
    expect(await run(engine, 1, 2, 3)).toEqual([0, 0, 1, 2]);
    expect((await run(engine, 1, 2, 1))[0]).toBe(8);
    await run(engine, 2, 4, 1);
    expect((await run(engine, 1, 2, 1))[0]).toBe(0);
    expect(engine.cacheUsage).toBe(1);
    engine.close();
  });

  it('ends a cancelled job wherever it is, and no other', async () => {
    const engine = new EmulatedEngine(options);
    const never = { token: () => undefined, end: () => expect.fail('it was cancelled') };
    const running = engine.submit(prompt(1, 3), 5, never);
    const waiting = engine.submit(prompt(2, 3), 5, never);
    const other = run(engine, 3, 1, 2);
    engine.cancel(waiting);
    engine.cancel(running);
    engine.cancel(running);
    expect(await other).toEqual([0, 0, 1]);
    expect([engine.runningRequests, engine.waitingRequests]).toEqual([0, 0]);
    engine.close();
  });

  it('stands still while it hangs, and goes on afterwards', async () => {
    const engine = new EmulatedEngine(options);
    engine.setFault(1, true);
    const one = run(engine, 1, 1, 2);
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect([engine.promptTokens, engine.steps]).toEqual([0, 0]);
    engine.setFault(1, false);
    expect(await one).toEqual([0, 0, 1]);
    engine.close();
  });
});
