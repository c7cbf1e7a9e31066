/** What a scheduler tells of itself while it serves: a page, metrics, explanations. */
import { Option, type Command } from 'commander';
import type { WebConsole } from '../console/index.js';
import type { Address } from '../control/index.js';
import type { LeaseEvent, LeaseLedger, LeaseOptions } from '../leases/index.js';
import type { Log } from '../log/index.js';
import { DecisionLog, decisionsDocument } from '../scheduler/index.js';
import { listenAddressOf } from './control-options.js';
import { addMetricsOption, openMetrics, type MetricsFlags, type OpenMetrics } from './metrics-options.js';
import type { CliContext } from './support.js';

export interface ServeWatchFlags extends MetricsFlags {
  readonly web?: Address;
  readonly explain: boolean;
}

export function addServeWatchOptions(command: Command): Command {
  return addMetricsOption(command)
    .option(
      '--web <address>',
      'host:port of a page that shows nodes, engines, queues and requests, for browsers on this host',
      listenAddressOf,
    )
    .addOption(new Option('--no-explain', 'keep no decisions for dualpath explain'));
}

interface Held {
  ledger?: () => LeaseLedger | undefined;
}

export class ServeWatch {
  /** Of the lease ledger. */
  readonly leases: Pick<LeaseOptions, 'decisions'>;
  readonly observers: readonly ((event: LeaseEvent) => void)[];
  readonly explain: ((request: string) => string | undefined) | undefined;
  readonly #page: WebConsole | undefined;
  readonly #metrics: OpenMetrics | undefined;
  readonly #held: Held;

  private constructor(
    held: Held,
    page: WebConsole | undefined,
    metrics: OpenMetrics | undefined,
    decisions: DecisionLog | undefined,
    observers: readonly ((event: LeaseEvent) => void)[],
  ) {
    this.#held = held;
    this.#page = page;
    this.#metrics = metrics;
    this.observers = observers;
    this.leases = decisions === undefined ? {} : { decisions };
    this.explain =
      decisions &&
      ((request) => {
        const found = decisions.find(request);
        return found && decisionsDocument(found);
      });
  }

  /** @throws INVALID_ARGUMENT for an address that cannot be had */
  static async open(flags: ServeWatchFlags, context: CliContext, log: Log | undefined): Promise<ServeWatch> {
    // Until the server is there they have nothing to show.
    const held: Held = {};
    const source = (): ReturnType<typeof sourceOf> => sourceOf(held.ledger?.());
    const observers: ((event: LeaseEvent) => void)[] = [];
    if (log !== undefined) observers.push((await import('../log/index.js')).leaseLog(log));
    const metrics = await openMetrics(flags, context);
    try {
      if (metrics !== undefined) {
        const { addSchedulerMetrics, leaseObserver } = await import('../metrics/index.js');
        addSchedulerMetrics(metrics.metrics, source);
        observers.push(leaseObserver(metrics.metrics));
      }
      const page =
        flags.web && (await (await import('../console/index.js')).WebConsole.open(flags.web, source));
      if (page !== undefined) {
        observers.push((event) => page.observe(event));
        context.note(`page at ${page.url}`);
      }
      const decisions = flags.explain ? new DecisionLog() : undefined;
      return new ServeWatch(held, page, metrics, decisions, observers);
    } catch (error) {
      await metrics?.close();
      throw error;
    }
  }

  /** The server that is watched. */
  watch(ledger: () => LeaseLedger | undefined): void {
    this.#held.ledger = ledger;
  }

  async close(): Promise<void> {
    await this.#page?.close();
    await this.#metrics?.close();
  }
}

function sourceOf(
  ledger: LeaseLedger | undefined,
): (Pick<LeaseLedger['admission'], 'statistics' | 'engines'> & { epoch(): number }) | undefined {
  return (
    ledger && {
      statistics: () => ledger.admission.statistics(),
      engines: () => ledger.admission.engines(),
      epoch: () => ledger.statistics().epoch,
    }
  );
}
