/** Prometheus metrics: one table of names, read off what the program counts, served over HTTP. */
export { addEngineMetrics } from './engines.js';
export { leaseObserver, type ObservedEvent } from './leases.js';
export { Metrics, type Sample } from './registry.js';
export { addSchedulerMetrics, type SchedulerSource } from './scheduler.js';
export { MetricsServer } from './server.js';
export { addStoreMetrics } from './store.js';
export { metricTable, type MetricName, type MetricRow } from './table.js';
