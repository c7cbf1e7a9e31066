import type { AdmissionStatistics, EngineState } from '../scheduler/index.js';
import type { Metrics, Sample } from './registry.js';
import type { MetricName } from './table.js';

/** A scheduler as metrics see it: `Admission`, `LocalScheduler`, what stands around them. */
export interface SchedulerSource {
  statistics(): AdmissionStatistics;
  engines(): Iterable<EngineState>;
  epoch(): number;
}

/** @param source undefined while there is no scheduler */
export function addSchedulerMetrics(metrics: Metrics, source: () => SchedulerSource | undefined): void {
  const counts = (name: MetricName, read: (statistics: AdmissionStatistics, sample: Sample) => void): void =>
    metrics.read(name, (sample) => {
      const scheduler = source();
      if (scheduler !== undefined) read(scheduler.statistics(), sample);
    });
  counts('dualpath_scheduler_requests_total', ({ submitted, admitted, completed, failed }, sample) => {
    for (const [outcome, value] of Object.entries({ submitted, admitted, completed, failed })) {
      sample(value, { outcome });
    }
  });
  counts('dualpath_scheduler_waiting_requests', ({ waiting }, sample) => sample(waiting));
  counts('dualpath_scheduler_running_requests', ({ running }, sample) => sample(running));
  counts('dualpath_scheduler_assignments_total', ({ assignedBySide }, sample) => {
    for (const [path, value] of Object.entries(assignedBySide)) sample(value, { path });
  });
  counts('dualpath_scheduler_read_blocks_total', ({ prefillReadBlocks, decodeReadBlocks }, sample) => {
    sample(prefillReadBlocks, { side: 'prefill' });
    sample(decodeReadBlocks, { side: 'decode' });
  });
  counts('dualpath_scheduler_head_waits_total', ({ headWaits }, sample) => {
    for (const [cause, value] of Object.entries(headWaits)) sample(value, { cause });
  });
  counts('dualpath_scheduler_ignored_reports_total', ({ ignoredReports }, sample) => sample(ignoredReports));
  counts('dualpath_scheduler_stale_loads_total', ({ staleLoads }, sample) => sample(staleLoads));
  metrics.read('dualpath_scheduler_epoch', (sample) => {
    const scheduler = source();
    if (scheduler !== undefined) sample(scheduler.epoch());
  });
  const levels = (name: MetricName, read: (engine: EngineState) => number): void =>
    metrics.read(name, (sample) => {
      for (const engine of source()?.engines() ?? []) {
        sample(read(engine), { engine: engine.capacity.engine, role: engine.capacity.role });
      }
    });
  levels('dualpath_scheduler_engine_requests', ({ unfinishedRequests }) => unfinishedRequests);
  levels('dualpath_scheduler_engine_tokens', ({ unfinishedTokens }) => unfinishedTokens);
  levels('dualpath_scheduler_engine_buffer_blocks', ({ bufferBlocks }) => bufferBlocks);
  levels('dualpath_scheduler_engine_hbm_blocks', ({ hbmBlocks }) => hbmBlocks);
  levels('dualpath_scheduler_engine_lost', ({ lost }) => (lost ? 1 : 0));
  metrics.read('dualpath_scheduler_read_queue_blocks', (sample) => {
    for (const { capacity, link } of source()?.engines() ?? []) {
      sample(link.readQueueBlocks, { node: capacity.node });
    }
  });
}
