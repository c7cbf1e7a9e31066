import { describe, expect, it } from 'vitest';
import { LayerRun } from '../../src/engine/batch-layers.js';
import { BatchCounters } from '../../src/flow/index.js';
import type { Program, TransferEngine } from '../../src/transfer/index.js';

interface Submitted {
  readonly done: () => void;
  readonly fail: (error: Error) => void;
}

/** An engine whose programs end when the test says so. */
function stepping(): { engine: TransferEngine; submitted: Submitted[] } {
  const submitted: Submitted[] = [];
  const engine = {
    takeCounters: () => 0,
    cancel: () => undefined,
    submit(descriptors: readonly { steps?: number }[], onStep?: (step: number) => void): Program {
      let entry: Submitted | undefined;
      const done = new Promise<never>((resolve, reject) => {
        entry = { done: resolve as () => void, fail: reject };
      });
      submitted.push(entry!);
      for (let step = 0; onStep !== undefined && step < descriptors[0]!.steps!; step++) onStep(step);
      return { done } as unknown as Program;
    },
  };
  return { engine: engine as unknown as TransferEngine, submitted };
}

describe('a run over the layers that is left', () => {
  it.each(['done', 'fail'] as const)('is over when what it said of its layers is %s', async (outcome) => {
    const { engine, submitted } = stepping();
    const run = new LayerRun(engine, new BatchCounters(engine, 4, 4, true), []);
    let over = false;
    void run.over.then(() => (over = true));
    const [first] = run.layers();
    await first!.ready();
    first!.done();
    run.leave();
    const [layers, bump] = submitted;
    layers!.fail(new Error('cancelled'));
    await new Promise(setImmediate);
    // The counters are another's once the run is over: a bump that comes later would count there.
    expect(over).toBe(false);
    bump![outcome](new Error('closed'));
    await run.over;
  });
});
