/** A request's own signal and deadline: it ends on both sides, and not before what is in flight has ended. */
import { getEventListeners } from 'node:events';
import { describe, expect, it, vi } from 'vitest';
import { decodeReads, Gate, TestCluster, tokens, type ClusterOptions } from './cluster.js';

const readDelayNs = 100_000_000;

const flows: [string, ClusterOptions][] = [
  ['PE read', { policy: 'prefill' }],
  ['DE read', decodeReads],
  ['split read', { policy: 'split' }],
];

describe('a deadline of a request', () => {
  it.each(flows)('while its hits are read: %s', async (_, options) => {
    await using cluster = new TestCluster({
      ...{ bufferBlocks: 8, ...options },
      limits: (request) => (request === 'reading' ? { deadlineMs: 20 } : {}),
    });
    const prompt = tokens(100);
    await cluster.turn('store', prompt);
    cluster.runtimes.prefill.setFaults({ readDelayNs });
    cluster.runtimes.decode.setFaults({ readDelayNs });
    const started = performance.now();
    await expect(cluster.turn('reading', prompt)).rejects.toMatchObject({ code: 'DEADLINE' });
    cluster.runtimes.prefill.setFaults({});
    cluster.runtimes.decode.setFaults({});
    expect(performance.now() - started).toBeGreaterThan(15);
    // The reads end in memory that is still the request's; the next one waits for it.
    const next = tokens(100);
    await cluster.turn('next', next);
    await cluster.expectRightBytes(prompt, next);
    await cluster.expectNothingHeld();
  });

  it('while it waits behind a batch', async () => {
    const gate = new Gate();
    await using cluster = new TestCluster({
      ...{ maxBatches: 1, beforeBatch: () => gate.opened },
      limits: (request) => (request === 'second' ? { deadlineMs: 20 } : {}),
    });
    const prompt = tokens(70);
    const first = cluster.turn('first', prompt);
    await vi.waitFor(() => expect(cluster.batches).toBe(1));
    await expect(cluster.turn('second', tokens(70))).rejects.toMatchObject({
      code: 'DEADLINE',
      message: expect.stringMatching(
        /^the deadline of 20 ms passed: request 'second' was cancelled/,
      ) as string,
    });
    gate.open();
    await first;
    await cluster.expectRightBytes(prompt);
    await cluster.expectNothingHeld();
  });

  it('and its signal, whichever comes first; those that end in time leave nothing behind', async () => {
    const abort = new AbortController();
    await using cluster = new TestCluster({
      prompt: (request, prompt) => (request === 'endless' ? new Promise(() => undefined) : prompt),
      limits: () => ({ deadlineMs: 60_000, signal: abort.signal }),
    });
    await cluster.turn('quick', tokens(70));
    await vi.waitFor(() => expect(getEventListeners(abort.signal, 'abort')).toHaveLength(0));
    const ended = cluster.turn('endless', tokens(70));
    await vi.waitFor(() => expect(getEventListeners(abort.signal, 'abort')).toHaveLength(2));
    abort.abort();
    await expect(ended).rejects.toMatchObject({ code: 'CANCELLED' });
    await cluster.expectNothingHeld();
    expect(getEventListeners(abort.signal, 'abort')).toHaveLength(0);
  });

  it('that is no number of milliseconds', async () => {
    await using cluster = new TestCluster({ limits: () => ({ deadlineMs: -1 }) });
    await expect(cluster.turn('negative', tokens(70))).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' });
    await cluster.expectNothingHeld();
  });
});
