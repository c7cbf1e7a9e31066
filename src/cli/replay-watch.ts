/** What a replay tells of itself while it runs, and of its decisions. */
import type { Command } from 'commander';
import { isDualPathError } from '../errors/index.js';
import type {
  ClusterOptions,
  ModeSummary,
  ReplayCluster,
  ReplayHooks,
  ReplayMode,
  TurnRecord,
} from '../replay/index.js';
import { DecisionsFile } from './decisions-file.js';
import { addMetricsOption, openMetrics, type MetricsFlags, type OpenMetrics } from './metrics-options.js';
import { toJson } from './output.js';
import type { ModeRecord } from './replay-report.js';
import type { CliContext } from './support.js';

export interface WatchFlags extends MetricsFlags {
  report?: string;
  decisions?: string;
}

export function addWatchOptions(command: Command): Command {
  command.option('--decisions <file>', 'write why each request went where it went, for dualpath explain');
  command.option('--report <file>', 'write an HTML page: time to first token, links over time, tables');
  return addMetricsOption(command);
}

export class ReplayWatch {
  readonly hooks: Pick<ReplayHooks, 'onOpen' | 'onError'>;
  readonly #decisions: DecisionsFile | undefined;
  readonly #metrics: OpenMetrics | undefined;
  readonly #page: string | undefined;
  readonly #records = new Map<ReplayMode, ModeRecord>();
  #cluster: ReplayCluster | undefined;
  #record: ModeRecord | undefined;

  private constructor(
    decisions: DecisionsFile | undefined,
    metrics: OpenMetrics | undefined,
    page: string | undefined,
  ) {
    this.#page = page;
    this.#decisions = decisions;
    this.#metrics = metrics;
    this.hooks = {
      onOpen: (cluster) => void this.#open(cluster),
      onError: (error, retried) => this.#error(error, retried),
    };
  }

  /** @throws INVALID_ARGUMENT for a file or an address that cannot be had */
  static async open(flags: WatchFlags, context: CliContext): Promise<ReplayWatch> {
    const metrics = await openMetrics(flags, context);
    try {
      const decisions = flags.decisions === undefined ? undefined : new DecisionsFile(flags.decisions);
      const watch = new ReplayWatch(decisions, metrics, flags.report);
      if (metrics !== undefined) await watch.#addMetrics(metrics);
      return watch;
    } catch (error) {
      await metrics?.close();
      throw error;
    }
  }

  async #addMetrics({ metrics }: OpenMetrics): Promise<void> {
    const [{ addEngineMetrics, addSchedulerMetrics, addStoreMetrics }, { Cluster }] = await Promise.all([
      import('../metrics/index.js'),
      import('../replay/index.js'),
    ]);
    addSchedulerMetrics(metrics, () => this.#cluster?.scheduler);
    addEngineMetrics(metrics, () => {
      const cluster = this.#cluster;
      if (!(cluster instanceof Cluster)) return []; // those of other processes have metrics of their own
      return [...cluster.prefill, ...cluster.decode].map(({ engine }) => engine);
    });
    addStoreMetrics(metrics, () => this.#cluster?.store);
    metrics.count('dualpath_retries_total', {}, 0);
  }

  async #open(cluster: ReplayCluster): Promise<void> {
    this.#cluster = cluster;
    const record = this.#record;
    if (record === undefined) return;
    const { Cluster, LinkSamples } = await import('../replay/index.js');
    // Links of other processes are theirs to report.
    if (cluster instanceof Cluster) record.links = new LinkSamples(cluster);
  }

  /** For one mode's cluster. */
  async options(mode: ReplayMode): Promise<Pick<ClusterOptions, 'decisions' | 'layerWatch'>> {
    if (this.#page !== undefined) {
      const { LayerWatch } = await import('../replay/index.js');
      this.#record = { turns: [], links: undefined, samples: [], layerWatch: new LayerWatch() };
      this.#records.set(mode, this.#record);
    }
    return {
      ...(this.#record === undefined ? {} : { layerWatch: this.#record.layerWatch }),
      ...(this.#decisions === undefined ? {} : { decisions: this.#decisions.log(mode) }),
    };
  }

  /** The run of a mode's turns is over, its cluster closed. */
  modeEnded(): void {
    const record = this.#record;
    if (record !== undefined) record.samples = record.links?.stop() ?? [];
    this.#record = undefined;
  }

  /** Writes the page that was asked for. */
  async report(summaries: ReadonlyMap<ReplayMode, ModeSummary>, document: object): Promise<void> {
    if (this.#page === undefined) return;
    const [{ writeReport }, { replayReport }] = await Promise.all([
      import('../report/index.js'),
      import('./replay-report.js'),
    ]);
    const parsed = JSON.parse(toJson(document)) as object;
    writeReport(replayReport(this.#records, summaries, parsed), { report: this.#page });
  }

  turn(turn: TurnRecord): void {
    this.#record?.turns.push(turn);
    this.#metrics?.metrics.observe('dualpath_request_ttft_seconds', turn.ttftMs / 1000);
  }

  #error(error: Error, retried: boolean): void {
    const metrics = this.#metrics?.metrics;
    if (retried) metrics?.count('dualpath_retries_total');
    else metrics?.count('dualpath_errors_total', { code: isDualPathError(error) ? error.code : 'INTERNAL' });
  }

  /** @throws STORAGE_IO when decisions could not be written */
  async close(): Promise<void> {
    await this.#metrics?.close();
    this.#decisions?.close();
  }
}
