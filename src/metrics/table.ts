/**
 * Every metric there is: docs/observability.md has this table, dashboards use nothing else, and a registry refuses what
 * is not in it. Labels have few values: engines and nodes of the cluster, and words that the program knows.
 */
export interface MetricRow {
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly help: string;
  readonly labels: readonly string[];
}

const counter = (help: string, ...labels: string[]): MetricRow => ({ type: 'counter', help, labels });
const gauge = (help: string, ...labels: string[]): MetricRow => ({ type: 'gauge', help, labels });
const histogram = (help: string, ...labels: string[]): MetricRow => ({ type: 'histogram', help, labels });

const scheduler = {
  dualpath_scheduler_requests_total: counter('Requests by what became of them', 'outcome'),
  dualpath_scheduler_waiting_requests: gauge('Requests without engines: in line for a PE or for a DE'),
  dualpath_scheduler_running_requests: gauge('Requests that are assigned and have not ended'),
  dualpath_scheduler_epoch: gauge('Epoch: grows when an engine is lost and with each new leader'),
  dualpath_scheduler_assignments_total: counter('Assignments by read path: prefill, decode, split', 'path'),
  dualpath_scheduler_read_blocks_total: counter('Blocks that a side was given to read', 'side'),
  dualpath_scheduler_head_waits_total: counter(
    'Times that the head of a queue had to wait, by cause',
    'cause',
  ),
  dualpath_scheduler_ignored_reports_total: counter('Reports of what had ended or was never assigned'),
  dualpath_scheduler_stale_loads_total: counter('Loads not newer than the last of their engine'),
  dualpath_scheduler_engine_requests: gauge('seq_e: unfinished requests on the account', 'engine', 'role'),
  dualpath_scheduler_engine_tokens: gauge('tok_e: their tokens', 'engine', 'role'),
  dualpath_scheduler_engine_buffer_blocks: gauge('Buffer blocks reserved', 'engine', 'role'),
  dualpath_scheduler_engine_hbm_blocks: gauge('HBM blocks reserved', 'engine', 'role'),
  dualpath_scheduler_engine_lost: gauge('1 for an engine that was lost', 'engine', 'role'),
  dualpath_scheduler_read_queue_blocks: gauge("read_q: blocks queued on a node's storage link", 'node'),
} as const satisfies Record<string, MetricRow>;

const requests = {
  dualpath_request_ttft_seconds: histogram('From submission until the prompt is at its decode engine'),
  dualpath_request_wait_seconds: histogram('From submission, or from being returned, to assignment'),
  dualpath_request_run_seconds: histogram('From assignment to the end', 'outcome'),
  dualpath_errors_total: counter('Requests that ended with an error, by code', 'code'),
  dualpath_retries_total: counter('Requests that were given to engines again'),
} as const satisfies Record<string, MetricRow>;

const leases = {
  dualpath_lease_events_total: counter('What happened to leases and requests', 'event'),
  dualpath_lease_dropped_total: counter('Late words of leases that had ended: dropped', 'what'),
  dualpath_lease_engine_changes_total: counter('Engines that came, went or changed', 'change'),
  dualpath_lease_generated_tokens_total: counter('Tokens that engines streamed'),
  dualpath_lease_clock_leaps_total: counter('Leaps of the clock that were seen'),
} as const satisfies Record<string, MetricRow>;

const engines = {
  dualpath_storage_read_bytes_total: counter('Bytes of blocks read from storage', 'engine', 'role'),
  dualpath_storage_read_blocks_total: counter('Blocks read', 'engine', 'role'),
  dualpath_storage_bad_blocks_total: counter('Blocks that were bad and became misses', 'engine', 'role'),
  dualpath_storage_write_bytes_total: counter('Bytes of blocks written', 'engine', 'role'),
  dualpath_storage_write_blocks_total: counter('Blocks written', 'engine', 'role'),
  dualpath_storage_write_skipped_blocks_total: counter('Blocks that were there already', 'engine', 'role'),
  dualpath_copy_bytes_total: counter(
    'Bytes copied on the host, by way: nic, memcpy, cuda',
    'engine',
    'role',
    'way',
  ),
  dualpath_copy_refusals_total: counter('Copies that the NIC did not carry', 'engine', 'role', 'cause'),
  dualpath_send_bytes_total: counter('Bytes sent to other engines', 'engine', 'role'),
  dualpath_send_steps_total: counter('Layers sent to other engines', 'engine', 'role'),
  dualpath_programs_total: counter('Programs that were queued', 'engine', 'role'),
  dualpath_failed_programs_total: counter('Programs that failed or were cancelled', 'engine', 'role'),
  dualpath_waits_total: counter(
    'Looks that found a descriptor blocked, by cause: counter, link, queue, peer',
    ...['engine', 'role', 'cause'],
  ),
  dualpath_stale_signals_total: counter('Signals for an earlier use of a counter: dropped', 'engine', 'role'),
  dualpath_lookups_total: counter('Prompts hashed or looked up', 'engine', 'role'),
  dualpath_lookup_blocks_total: counter('Their blocks', 'engine', 'role'),
  dualpath_pool_blocks: gauge('Size of a pool: buffer, hbm (of a PE: staging)', 'engine', 'role', 'pool'),
  dualpath_pool_free_blocks: gauge('Free blocks of it', 'engine', 'role', 'pool'),
  dualpath_pool_high_water_blocks: gauge('Most that were ever taken at once', 'engine', 'role', 'pool'),
  dualpath_link_bytes_total: counter(
    'Bytes over an emulated link: storage_read, storage_write, compute_egress, compute_ingress',
    ...['engine', 'role', 'link'],
  ),
  dualpath_link_busy_seconds_total: counter('How long it was busy', 'engine', 'role', 'link'),
  dualpath_link_class_bytes_total: counter(
    'Bytes over an emulated compute link by traffic class: inference, kv, control',
    ...['engine', 'role', 'link', 'class'],
  ),
  dualpath_transport_info: gauge(
    '1; what carries bytes to other engines',
    ...['engine', 'role', 'transport', 'device', 'traffic_class'],
  ),
  dualpath_transport_connections_total: counter(
    'Connections made, those made anew included',
    'engine',
    'role',
  ),
  dualpath_transport_rebuilt_total: counter('Connections made anew after a loss', 'engine', 'role'),
  dualpath_prefill_requests_total: counter('Requests whose hits a PE had', 'engine'),
  dualpath_prefill_prompt_tokens_total: counter('Prompt tokens of them', 'engine'),
  dualpath_prefill_hit_tokens_total: counter('Prompt tokens whose KV came from the store', 'engine'),
  dualpath_prefill_lost_blocks_total: counter('Blocks found that could not be read: computed', 'engine'),
} as const satisfies Record<string, MetricRow>;

const store = {
  dualpath_store_blocks: gauge('Blocks in the index of this process'),
  dualpath_store_bytes: gauge('Bytes of them'),
  dualpath_store_capacity_bytes: gauge('Capacity in force; 0: none'),
  dualpath_store_published_blocks_total: counter('Blocks published by this process'),
  dualpath_store_evicted_blocks_total: counter('Blocks evicted by this process'),
  dualpath_store_evicted_bytes_total: counter('Bytes of them'),
  dualpath_store_quarantined_blocks_total: counter('Blocks moved aside'),
  dualpath_store_key_cache_blocks_total: counter(
    'Blocks of look-ups by whether their key was known',
    'result',
  ),
} as const satisfies Record<string, MetricRow>;

export const metricTable = { ...scheduler, ...requests, ...leases, ...engines, ...store } as const;

export type MetricName = keyof typeof metricTable;
