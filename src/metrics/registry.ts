import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import { metricTable, type MetricName, type MetricRow } from './table.js';

type Labels = Readonly<Record<string, string>>;
export type Sample = (value: number, labels?: Labels) => void;

/** Seconds, from a millisecond to minutes. */
const secondsBuckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300];

/**
 * Metrics of one process. Most are read off the program's own counts when somebody asks, so that they cost nothing
 * otherwise; `count` and `observe` are for what nothing else counts.
 */
export class Metrics {
  readonly registry = new Registry();
  readonly #counters = new Map<MetricName, Counter>();
  readonly #histograms = new Map<MetricName, Histogram>();

  /** Counts or levels that somebody else keeps: `collect` is called for each scrape. */
  read(name: MetricName, collect: (sample: Sample) => void): void {
    const { type } = metricTable[name];
    if (type === 'counter') {
      new Counter({
        ...this.#options(name),
        collect() {
          this.reset();
          collect((value, labels = {}) => this.inc(labels, value));
        },
      });
      return;
    }
    new Gauge({
      ...this.#options(name),
      collect() {
        this.reset();
        collect((value, labels = {}) => this.set(labels, value));
      },
    });
  }

  /** @param by 0: the sample exists from now on, as 0 */
  count(name: MetricName, labels: Labels = {}, by = 1): void {
    let counter = this.#counters.get(name);
    if (counter === undefined) this.#counters.set(name, (counter = new Counter(this.#options(name))));
    counter.inc(labels, by);
  }

  observe(name: MetricName, seconds: number, labels: Labels = {}): void {
    let histogram = this.#histograms.get(name);
    if (histogram === undefined) {
      histogram = new Histogram({ ...this.#options(name), buckets: secondsBuckets });
      this.#histograms.set(name, histogram);
    }
    histogram.observe(labels, seconds);
  }

  #options(name: MetricName): { name: string; help: string; labelNames: string[]; registers: Registry[] } {
    const { help, labels }: MetricRow = metricTable[name];
    return { name, help, labelNames: [...labels], registers: [this.registry] };
  }
}
