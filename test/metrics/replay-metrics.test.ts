import { describe, expect, it } from 'vitest';
import { addEngineMetrics, addSchedulerMetrics, addStoreMetrics, Metrics } from '../../src/metrics/index.js';
import { replayMode, type Cluster, type ModeResult } from '../../src/replay/index.js';
import { cluster, workload } from '../replay/support.js';

/** Sum of the samples of a metric whose labels contain `labels`. */
function sumOf(text: string, name: string, labels = ''): number {
  const lines = text.split('\n').filter((line) => line.startsWith(`${name}{`) || line.startsWith(`${name} `));
  const chosen = lines.filter((line) => line.includes(labels));
  return chosen.reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0);
}

describe('metrics of a replay', () => {
  it('agree with what the replay reports', async () => {
    const metrics = new Metrics();
    let open: Cluster | undefined;
    addSchedulerMetrics(metrics, () => open?.scheduler);
    addEngineMetrics(metrics, () => [...open!.prefill, ...open!.decode].map(({ engine }) => engine));
    addStoreMetrics(metrics, () => open?.store);
    const load = await workload();
    const turns = load.sessions.reduce((sum, session) => sum + session.turns.length, 0);
    let last: Promise<string> | undefined;
    const result: ModeResult = await replayMode(load, cluster({ concurrency: 1 }), 'split', {
      onCluster: (made) => (open = made),
      onTurn: (done) => {
        if (done === turns) last = metrics.registry.metrics();
      },
    });
    const text = await last!;
    expect(sumOf(text, 'dualpath_scheduler_requests_total', 'submitted')).toBe(turns);
    expect(sumOf(text, 'dualpath_scheduler_assignments_total')).toBe(turns);
    expect(sumOf(text, 'dualpath_scheduler_assignments_total', 'path="split"')).toBeGreaterThan(0);
    const read = result.nodes.reduce((sum, { storageReadBytes }) => sum + storageReadBytes, 0);
    expect(sumOf(text, 'dualpath_link_bytes_total', 'link="storage_read"')).toBe(read);
    expect(sumOf(text, 'dualpath_storage_read_bytes_total')).toBeGreaterThanOrEqual(read);
    const hits = result.turns.reduce((sum, { hitTokens }) => sum + hitTokens, 0);
    expect(sumOf(text, 'dualpath_prefill_hit_tokens_total')).toBe(hits);
    expect(sumOf(text, 'dualpath_pool_blocks', 'pool="hbm"')).toBeGreaterThan(0);
    expect(sumOf(text, 'dualpath_transport_info', 'transport="loopback"')).toBe(2);
    expect(sumOf(text, 'dualpath_store_blocks')).toBeGreaterThan(0);
  });
});
