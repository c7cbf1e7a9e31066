import { Counter, Gauge, Histogram, Registry } from 'prom-client';

/** What the router says of itself at /metrics. */
export class ProxyMetrics {
  readonly registry = new Registry();
  readonly requests = this.#counter('requests_total', 'Requests that ended, by how', ['api', 'outcome']);
  readonly passed = this.#counter('passed_total', 'Requests to other paths, by how they ended', ['outcome']);
  readonly refused = this.#counter('refused_total', 'Requests answered by the router itself', ['status']);
  readonly retries = this.#counter('retries_total', 'Second tries, by why the first ended', ['reason']);
  readonly ejections = this.#counter('ejections_total', 'Replicas passed over, by why', ['reason']);
  readonly streamErrors = this.#counter('stream_errors_total', 'Errors within responses of status 200', []);
  readonly predictedHitTokens = this.#counter('predicted_hit_tokens_total', 'Cached tokens counted on', []);
  readonly reportedHitTokens = this.#counter(
    'reported_hit_tokens_total',
    'Cached tokens that replicas reported',
    [],
  );
  readonly kvEvents = this.#counter('kv_events_total', 'KV events taken, by type', ['type']);
  readonly kvEventGaps = this.#counter(
    'kv_event_gaps_total',
    'Batches of KV events missing, by whether they were had after all',
    ['outcome'],
  );
  readonly kvEventsMalformed = this.#counter(
    'kv_events_malformed_total',
    'Messages that are no KV events',
    [],
  );
  readonly ttft = new Histogram({
    name: 'dualpath_router_ttft_seconds',
    help: 'From the whole request to the first byte of a streamed response',
    buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60],
    registers: [this.registry],
  });
  readonly hitError = new Histogram({
    name: 'dualpath_router_hit_error_tokens',
    help: 'Reported minus predicted cached tokens, where a replica reports them',
    buckets: [-16384, -4096, -1024, -256, 0, 256, 1024, 4096, 16384],
    registers: [this.registry],
  });

  observeHits(predicted: number, reported: number): void {
    this.predictedHitTokens.inc(predicted);
    this.reportedHitTokens.inc(reported);
    this.hitError.observe(reported - predicted);
  }

  /** A value that is read when somebody asks. */
  gauge(name: string, help: string, labels: string[], collect: (set: Gauge['set']) => void): void {
    new Gauge({
      name: `dualpath_router_${name}`,
      help,
      labelNames: labels,
      registers: [this.registry],
      collect() {
        this.reset();
        collect(this.set.bind(this));
      },
    });
  }

  #counter<T extends string>(name: string, help: string, labelNames: T[]): Counter<T> {
    return new Counter({ name: `dualpath_router_${name}`, help, labelNames, registers: [this.registry] });
  }
}
