import type { BlockStore } from '../storage/index.js';
import type { Metrics } from './registry.js';
import type { MetricName } from './table.js';

const values = {
  dualpath_store_blocks: 'blocks',
  dualpath_store_bytes: 'bytes',
  dualpath_store_capacity_bytes: 'capacityBytes',
  dualpath_store_published_blocks_total: 'published',
  dualpath_store_evicted_blocks_total: 'evictedBlocks',
  dualpath_store_evicted_bytes_total: 'evictedBytes',
  dualpath_store_quarantined_blocks_total: 'quarantined',
} as const satisfies Partial<Record<MetricName, string>>;

/** @param store undefined while none is open */
export function addStoreMetrics(metrics: Metrics, store: () => BlockStore | undefined): void {
  for (const [name, key] of Object.entries(values)) {
    metrics.read(name as keyof typeof values, (sample) => {
      const statistics = store()?.statistics();
      if (statistics !== undefined) sample(statistics[key]);
    });
  }
  metrics.read('dualpath_store_key_cache_blocks_total', (sample) => {
    const statistics = store()?.statistics();
    if (statistics === undefined) return;
    sample(statistics.chainHitBlocks, { result: 'known' });
    sample(statistics.chainMissBlocks, { result: 'hashed' });
  });
}
