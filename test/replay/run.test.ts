import { existsSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { DualPathError } from '../../src/errors/index.js';
import { blockLayout, loadModel } from '../../src/layout/index.js';
import {
  Cluster,
  replayMode,
  replayModes,
  summarize,
  type ModeResult,
  type ReplayMode,
} from '../../src/replay/index.js';
import { cluster, workload } from './support.js';

const modes = Object.keys(replayModes) as ReplayMode[];

describe('replayMode', () => {
  it.each(modes)('%s: every byte is checked and right, hits are those of the token chain', async (mode) => {
    const load = await workload();
    const options = cluster();
    const result = await replayMode(load, options, mode);
    const summary = summarize(result, 2);
    expect(summary.mismatchedBytes).toBe(0);
    expect(summary.persistError).toBeNull();
    expect(summary.lostBlocks).toBe(0);
    expect(summary.failedPrograms).toBe(0);
    expect(summary.turns).toBe(load.sessions.reduce((sum, { turns }) => sum + turns.length, 0));
    const hits = result.turns.reduce((sum, { hitTokens }) => sum + hitTokens, 0);
    expect(hits).toBeGreaterThan(0);
    const { bytesPerToken } = options.layout;
    // What was found was checked where it was used; Oracle carries none of it.
    expect(summary.verified.prefillHbmBytes).toBe(mode === 'oracle' ? 0 : hits * bytesPerToken);
    const prompts = result.turns.reduce((sum, { promptTokens }) => sum + promptTokens, 0);
    expect(summary.verified.decodeHbmBytes).toBe(
      (mode === 'oracle' ? prompts - hits : prompts) * bytesPerToken,
    );
    expect(summary.verified.storeBytes).toBeGreaterThan(0);
    expect(existsSync(options.storePath)).toBe(false);
  });

  it('finds the same hits in every mode', async () => {
    const load = await workload(4, 3);
    const found = [];
    for (const mode of modes) {
      // One session after the other: what sessions share is then found whatever the timing.
      const { turns } = await replayMode(load, cluster({ concurrency: 1 }), mode);
      found.push(turns.reduce((sum, { hitTokens }) => sum + hitTokens, 0));
    }
    expect(new Set(found).size).toBe(1);
  });

  it('reads where the mode says', async () => {
    const load = await workload();
    const read = async (mode: ReplayMode): Promise<number[]> => {
      const { nodes } = await replayMode(load, cluster({ decodeNodes: 2 }), mode);
      return nodes.map(({ storageReadBytes }) => storageReadBytes);
    };
    const [prefillOnly, ...decodeOnly] = await read('layerwise');
    expect(prefillOnly).toBeGreaterThan(0);
    expect(decodeOnly).toEqual([0, 0]);
    for (const bytes of await read('split')) expect(bytes).toBeGreaterThan(0);
    expect(await read('oracle')).toEqual([0, 0, 0]);
  });

  it('carries windowed and odd-sized KV with several engines a node, small staging and a narrow window', async () => {
    const layout = blockLayout(loadModel('demo-mla'), { blockTokens: 16 });
    const options = cluster({
      layout,
      enginesPerNode: 2,
      prefillNodes: 2,
      windowLayers: 1,
      prefillHbmBytes: 1 << 20,
    });
    const result = await replayMode(await workload(), options, 'split');
    expect(summarize(result, 2)).toMatchObject({ mismatchedBytes: 0, lostBlocks: 0, persistError: null });
  });

  it('may run twice at once: engines of one name meet those of their own cluster', async () => {
    const load = await workload(2, 2);
    const results = await Promise.all([1, 2].map(() => replayMode(load, cluster(), 'dualpath')));
    for (const result of results) {
      expect(summarize(result, 2)).toMatchObject({ mismatchedBytes: 0, failedPrograms: 0, lostBlocks: 0 });
    }
  });

  it('sees a flipped byte', async () => {
    const result = await replayMode(await workload(3, 3), cluster(), 'layerwise', {
      onCluster: ({ front }) => front.engine.runtime.setFaults({ flipByteAfter: 3 }),
    });
    expect(summarize(result, 2).mismatchedBytes).toBeGreaterThan(0);
  });

  it('reports what could not be stored', async () => {
    const result = await replayMode(await workload(3, 2), cluster(), 'dualpath', {
      onCluster: ({ front }) => front.engine.runtime.setFaults({ writeErrorAfter: 5, writeErrno: 28 }),
    });
    expect(result.persistError?.code).toBe('NO_SPACE');
    const summary = summarize(result, 2);
    expect(summary.mismatchedBytes).toBe(0);
    expect(summary.persistError).toContain('free space');
  });

  it('ends at once when interrupted, and removes its store', async () => {
    const abort = new AbortController();
    const options = cluster({ snicBytesPerS: 1e6 });
    const run = replayMode(await workload(), options, 'dualpath', {
      signal: abort.signal,
      onTurn: (done) => {
        if (done === 3) abort.abort();
      },
    });
    await expect(run).rejects.toMatchObject({ code: 'CANCELLED' });
    expect(existsSync(options.storePath)).toBe(false);
  });

  it('submits a turn again whose engines were lost, and not without end', async () => {
    const load = await workload(1, 1);
    const losing = (losses: number) => (): Promise<ModeResult> =>
      replayMode(load, cluster(), 'dualpath', {
        openCluster: async (options, mode, lanes, events) => {
          const opened = await Cluster.open(options, mode, lanes, events);
          const submit = opened.submit.bind(opened);
          opened.submit = async (description) => {
            if (losses-- <= 0) return await submit(description);
            const error = new DualPathError('PEER_LOST', 'engine d7 was lost');
            queueMicrotask(() =>
              events.failed({ request: description.request, assignment: undefined, error }),
            );
          };
          return opened;
        },
      });
    const { turns, retries } = await losing(3)();
    expect([turns.length, retries.map(({ cause }) => cause)]).toEqual([
      1,
      Array.from({ length: 3 }, () => 'engine d7 was lost'),
    ]);
    await expect(losing(4)()).rejects.toMatchObject({ code: 'PEER_LOST' });
  });

  it('runs as many sessions at once as it is told', async () => {
    const load = await workload(6, 2);
    const order: number[] = [];
    await replayMode(load, cluster({ concurrency: 1 }), 'layerwise', { onTurn: (done) => order.push(done) });
    expect(order).toHaveLength(load.sessions.reduce((sum, { turns }) => sum + turns.length, 0));
  });
});
