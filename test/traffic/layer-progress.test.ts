import { describe, expect, it } from 'vitest';
import fc from 'fast-check';
import { LayerProgress } from '../../src/traffic/layer-progress.js';

const settledOf = async (promise: Promise<void>): Promise<string> =>
  await Promise.race([
    promise.then(
      () => 'reached',
      (error: unknown) => String(error),
    ),
    new Promise<string>((resolve) => setImmediate(() => resolve('waits'))),
  ]);

describe('LayerProgress', () => {
  it('reaches a layer when all up to it have finished, in whatever order', async () => {
    const order = fc.integer({ min: 1, max: 8 }).chain((layers) =>
      fc.shuffledSubarray(
        Array.from({ length: layers }, (_, layer) => layer),
        { minLength: layers },
      ),
    );
    await fc.assert(
      fc.asyncProperty(order, async (steps) => {
        const progress = new LayerProgress();
        const early = steps.map((_, layer) => progress.reached(layer + 1));
        for (let done = 1; done <= steps.length; done++) {
          progress.stepFinished(steps[done - 1]!);
          const finished = new Set(steps.slice(0, done));
          let leading = 0;
          while (finished.has(leading)) leading++;
          const expected = steps.map((_, layer) => (layer < leading ? 'reached' : 'waits'));
          expect(await Promise.all(early.map(settledOf))).toEqual(expected);
          const late = steps.map((_, layer) => settledOf(progress.reached(layer + 1)));
          expect(await Promise.all(late)).toEqual(expected);
        }
      }),
      { numRuns: 40 },
    );
  });

  it('complete, everything is reached; failed, nothing more is', async () => {
    const complete = new LayerProgress();
    const waiting = complete.reached(100);
    complete.complete();
    expect(await settledOf(waiting)).toBe('reached');
    expect(await settledOf(complete.reached(7))).toBe('reached');
    const failed = new LayerProgress();
    const before = failed.reached(2);
    failed.stepFinished(0);
    failed.fail('lost');
    expect(await settledOf(before)).toBe('lost');
    expect(await settledOf(failed.reached(2))).toBe('lost');
    expect(await settledOf(failed.reached(1))).toBe('reached');
  });
});
