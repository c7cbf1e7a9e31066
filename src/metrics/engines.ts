import type { EngineStatistics } from '../binding/index.js';
import { PrefillEngine, type DecodeEngine } from '../engine/index.js';
import type { Metrics, Sample } from './registry.js';
import type { MetricName } from './table.js';

type Engine = PrefillEngine | DecodeEngine;
type Labels = { readonly engine: string; readonly role: string };

/** @param engines those of this process that run now */
export function addEngineMetrics(metrics: Metrics, engines: () => Iterable<Engine>): void {
  const each = (name: MetricName, read: (engine: Engine, sample: Sample, labels: Labels) => void): void =>
    metrics.read(name, (sample) => {
      for (const engine of engines()) {
        if (engine.traffic.engine.closed) continue;
        const role = engine instanceof PrefillEngine ? 'prefill' : 'decode';
        read(engine, sample, { engine: engine.name, role });
      }
    });
  addTransferMetrics(each);
  addPoolMetrics(each);
  addLinkMetrics(each);
  each('dualpath_transport_info', ({ traffic }, sample, labels) => {
    const { transport, device, trafficClass } = traffic.transport.facts();
    sample(1, { ...labels, transport, device: device ?? 'none', traffic_class: trafficClass ?? 'none' });
  });
  each('dualpath_transport_connections_total', ({ traffic }, sample, labels) =>
    sample(traffic.transport.facts().connections, labels),
  );
  each('dualpath_transport_rebuilt_total', ({ traffic }, sample, labels) =>
    sample(traffic.transport.facts().rebuilt, labels),
  );
  const hits = {
    dualpath_prefill_requests_total: 'requests',
    dualpath_prefill_prompt_tokens_total: 'promptTokens',
    dualpath_prefill_hit_tokens_total: 'hitTokens',
    dualpath_prefill_lost_blocks_total: 'lostBlocks',
  } as const;
  for (const [name, key] of Object.entries(hits)) {
    each(name as keyof typeof hits, (engine, sample, labels) => {
      if (engine instanceof PrefillEngine) sample(engine.hits[key], { engine: labels.engine });
    });
  }
}

type Each = (name: MetricName, read: (engine: Engine, sample: Sample, labels: Labels) => void) => void;

type NumberKeys = {
  [K in keyof EngineStatistics]: EngineStatistics[K] extends number ? K : never;
}[keyof EngineStatistics];

const counters = {
  dualpath_storage_read_bytes_total: 'readBytes',
  dualpath_storage_read_blocks_total: 'readBlocks',
  dualpath_storage_bad_blocks_total: 'badBlocks',
  dualpath_storage_write_bytes_total: 'writeBytes',
  dualpath_storage_write_blocks_total: 'writeBlocks',
  dualpath_storage_write_skipped_blocks_total: 'writeSkippedBlocks',
  dualpath_send_bytes_total: 'sendBytes',
  dualpath_send_steps_total: 'sendSteps',
  dualpath_programs_total: 'programs',
  dualpath_failed_programs_total: 'failedPrograms',
  dualpath_stale_signals_total: 'staleSignals',
  dualpath_lookups_total: 'lookups',
  dualpath_lookup_blocks_total: 'lookupBlocks',
} as const satisfies Partial<Record<MetricName, NumberKeys>>;

function addTransferMetrics(each: Each): void {
  for (const [name, key] of Object.entries(counters)) {
    each(name as keyof typeof counters, ({ traffic }, sample, labels) =>
      sample(traffic.engine.statistics()[key], labels),
    );
  }
  each('dualpath_copy_bytes_total', ({ traffic }, sample, labels) => {
    for (const [way, bytes] of Object.entries(traffic.engine.statistics().copyBytesByWay)) {
      sample(bytes, { ...labels, way });
    }
  });
  each('dualpath_copy_refusals_total', ({ traffic }, sample, labels) => {
    const { notWanted, notOpen, notRegistered, broken } = traffic.engine.statistics().copyRefusals;
    const causes = { not_wanted: notWanted, not_open: notOpen, not_registered: notRegistered, broken };
    for (const [cause, steps] of Object.entries(causes)) sample(steps, { ...labels, cause });
  });
  each('dualpath_waits_total', ({ traffic }, sample, labels) => {
    const { waitsCounter, waitsLink, waitsQueue, waitsPeer } = traffic.engine.statistics();
    const causes = { counter: waitsCounter, link: waitsLink, queue: waitsQueue, peer: waitsPeer };
    for (const [cause, looks] of Object.entries(causes)) sample(looks, { ...labels, cause });
  });
}

function addPoolMetrics(each: Each): void {
  const levels = {
    dualpath_pool_blocks: 'slots',
    dualpath_pool_free_blocks: 'available',
    dualpath_pool_high_water_blocks: 'highWater',
  } as const;
  for (const [name, key] of Object.entries(levels)) {
    each(name as keyof typeof levels, (engine, sample, labels) => {
      const hbm = engine instanceof PrefillEngine ? engine.staging : engine.hbm;
      sample(engine.traffic.buffer[key], { ...labels, pool: 'buffer' });
      sample(hbm[key], { ...labels, pool: 'hbm' });
    });
  }
}

function addLinkMetrics(each: Each): void {
  const links = {
    storage_read: 'storageRead',
    storage_write: 'storageWrite',
    compute_egress: 'nicEgress',
    compute_ingress: 'nicIngress',
  } as const;
  each('dualpath_link_bytes_total', ({ traffic }, sample, labels) => {
    for (const [link, key] of Object.entries(links)) {
      if (traffic.links) sample(traffic.links[key].statistics().bytes, { ...labels, link });
    }
  });
  each('dualpath_link_busy_seconds_total', ({ traffic }, sample, labels) => {
    for (const [link, key] of Object.entries(links)) {
      if (traffic.links) sample(traffic.links[key].statistics().busyNs / 1e9, { ...labels, link });
    }
  });
  each('dualpath_link_class_bytes_total', ({ traffic }, sample, labels) => {
    for (const link of ['compute_egress', 'compute_ingress'] as const) {
      if (traffic.links === undefined) return;
      const { classes } = traffic.links[links[link]].statistics();
      for (const [name, { bytes }] of Object.entries(classes))
        sample(bytes, { ...labels, link, class: name });
    }
  });
}
