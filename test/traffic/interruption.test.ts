/** Deadlines and signals at every call: an error comes only after what was in flight is quiet. */
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { BlockStore } from '../../src/storage/index.js';
import { LoadError } from '../../src/traffic/index.js';
import {
  errorOf,
  headsLayout,
  openManager,
  openRuntime,
  PagedMemory,
  saveSequence,
  scattered,
  scratchDirectory,
  tokens,
} from './support.js';

const layout = headsLayout();
const path = scratchDirectory(afterAll);
const store = BlockStore.open({ path: join(path, 'store'), layout });
const blocks = 8;
const blockTable = scattered(blocks);
const sequence = tokens(4 * blocks + 1, 41);

async function scene() {
  const runtime = openRuntime();
  const manager = openManager(layout, path, { runtime, store, bufferBlocks: blocks });
  (await saveSequence(manager, sequence, 1)).release();
  const memory = new PagedMemory(layout, 2 * blocks + 1, 'nhd');
  const geometry = manager.adopt(memory.geometry);
  const chain = await manager.lookup(sequence);
  return { runtime, manager, memory, options: { chain, geometry, blockTable } };
}

const delayNs = 80_000_000;

/** How a call may be limited, and what that ends with. */
const limits = [
  ['deadlineMs', () => ({ deadlineMs: 10 }), 'DEADLINE'],
  ['AbortSignal.timeout', () => ({ signal: AbortSignal.timeout(10) }), 'DEADLINE'],
  [
    'a deadline before the signal',
    () => ({ deadlineMs: 10, signal: new AbortController().signal }),
    'DEADLINE',
  ],
  [
    'a signal before the deadline',
    () => {
      const abort = new AbortController();
      setTimeout(() => abort.abort(), 10);
      return { deadlineMs: 60_000, signal: abort.signal };
    },
    'CANCELLED',
  ],
] as const;

describe.each(limits)('%s', (_name, limit, code) => {
  it('a load ends when its reads are through, and not before', async () => {
    const { runtime, manager, memory, options } = await scene();
    runtime.setFaults({ readDelayNs: delayNs });
    const started = performance.now();
    const load = manager.load({ ...options, ...limit() });
    const layer = errorOf(load.layer(0));
    const error = (await errorOf(load.done)) as LoadError;
    // The reads were under way into the buffer: no sooner than they came back.
    expect(performance.now() - started).toBeGreaterThan(delayNs / 1e6 - 5);
    expect(error).toBeInstanceOf(LoadError);
    expect([error.code, error.failedFromBlock, error.failedToBlock]).toEqual([code, 0, blocks]);
    expect(await layer).toBe(error);
    expect(manager.buffer.available).toBe(blocks);
    expect(memory.firstDifference(blockTable, 0, 1)).toBe(-1);
    runtime.setFaults({});
    await manager.load(options).done;
    expect(memory.firstDifference(blockTable, 4 * blocks, 1)).toBe(-1);
  });

  it('a load and a save that wait for the buffer', async () => {
    const { manager, options } = await scene();
    const all = await manager.buffer.take(blocks);
    const load = errorOf(manager.load({ ...options, ...limit() }).done);
    const save = errorOf(manager.save({ ...options, firstBlock: 0, blocks, ...limit() }).done);
    expect([(await load).code, (await save).code]).toEqual([code, code]);
    expect(manager.buffer.available).toBe(0);
    all.release();
    await manager.load(options).done;
  });
});

describe('a deadline', () => {
  it('says in its message what it was, and that nothing is in flight', async () => {
    const { runtime, manager, options } = await scene();
    runtime.setFaults({ readDelayNs: delayNs });
    const error = await errorOf(manager.load({ ...options, deadlineMs: 5 }).done);
    expect(error.message).toMatch(/^the deadline of 5 ms passed: .*nothing of it is in flight any more/);
    expect(error.details).toMatchObject({ deadline_ms: 5, failed_from_block: 0, failed_to_block: 8 });
  });

  it('that has passed already', async () => {
    const { manager, options } = await scene();
    const signal = AbortSignal.abort(new DOMException('late', 'TimeoutError'));
    const before = manager.engine.statistics().programs;
    const calls = [
      manager.load({ ...options, signal }).done,
      manager.save({ ...options, firstBlock: 0, blocks, signal }).done,
      manager.lookup(sequence, { signal }),
      manager.hash(sequence, { signal }),
    ];
    const errors = await Promise.all(calls.map((call) => errorOf(call)));
    expect(errors.map((error) => error.code)).toEqual(['DEADLINE', 'DEADLINE', 'DEADLINE', 'DEADLINE']);
    expect(manager.engine.statistics().programs).toBe(before);
  });

  it('during a look-up: its keys are given back', async () => {
    const { manager } = await scene();
    const available = manager.engine.keyTable.available;
    const abort = new AbortController();
    const lookup = errorOf(manager.lookup(sequence, { signal: abort.signal }));
    abort.abort();
    expect((await lookup).code).toBe('CANCELLED');
    expect(manager.engine.keyTable.available).toBe(available);
  });

  it.each([-1, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 31])('of %d ms is none', async (deadlineMs) => {
    const { manager, options } = await scene();
    const calls = [
      manager.load({ ...options, deadlineMs }).done,
      manager.save({ ...options, firstBlock: 0, blocks, deadlineMs }).done,
      manager.lookup(sequence, { deadlineMs }),
    ];
    for (const error of await Promise.all(calls.map((call) => errorOf(call)))) {
      expect(error.code).toBe('INVALID_ARGUMENT');
      expect(error.message).toContain('milliseconds from 0 to 2147483647');
    }
  });

  it('in time is no deadline', async () => {
    const { manager, memory, options } = await scene();
    const chain = await manager.lookup(sequence, { deadlineMs: 60_000 });
    await manager.load({ ...options, chain, deadlineMs: 60_000 }).done;
    expect(memory.firstDifference(blockTable, 4 * blocks, 1)).toBe(-1);
  });
});

describe('back-pressure', () => {
  it('of look-ups', async () => {
    const { manager } = await scene();
    const short = tokens(4, 3);
    const lookups = Array.from({ length: 1025 }, () => manager.lookup(short));
    const results = await Promise.allSettled(lookups);
    const refused = results.filter((result) => result.status === 'rejected');
    expect(refused).toHaveLength(1);
    expect(refused[0]!.reason).toMatchObject({
      code: 'CAPACITY_EXHAUSTED',
      details: { limit_lookups: 1024 },
    });
    for (const result of results) if (result.status === 'fulfilled') result.value.release();
    (await manager.lookup(short)).release();
  });

  it('of those who wait for the buffer', async () => {
    const { manager } = await scene();
    const all = await manager.buffer.take(blocks);
    const waiting = Array.from({ length: 4096 }, () => manager.buffer.take(1));
    expect(await errorOf(manager.buffer.take(1))).toMatchObject({
      code: 'CAPACITY_EXHAUSTED',
      details: { limit_waiting: 4096 },
    });
    all.release();
    for (const list of waiting) (await list).release();
    expect(manager.buffer.available).toBe(blocks);
  });
});
