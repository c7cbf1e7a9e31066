import { isDualPathError } from '../errors/index.js';
import type { Metrics } from './registry.js';

/** What metrics want to know of an event of the lease ledger; every event of it fits. */
export interface ObservedEvent {
  readonly kind: string;
  readonly waitedS?: number;
  readonly ranS?: number;
  readonly outcome?: string;
  readonly error?: unknown;
  readonly what?: string;
  readonly change?: string;
  readonly count?: number;
}

/** For the `observe` of a scheduler: a few additions an event. */
export function leaseObserver(metrics: Metrics): (event: ObservedEvent) => void {
  for (const name of [
    'dualpath_lease_generated_tokens_total',
    'dualpath_lease_clock_leaps_total',
    'dualpath_retries_total',
  ] as const)
    metrics.count(name, {}, 0);
  return (event) => {
    const { kind, waitedS, ranS, outcome = 'completed', error, what = 'other', change = 'other' } = event;
    if (kind === 'tokens') {
      metrics.count('dualpath_lease_generated_tokens_total', {}, event.count ?? 0);
      return;
    }
    metrics.count('dualpath_lease_events_total', { event: kind });
    switch (kind) {
      case 'assigned':
        if (waitedS !== undefined) metrics.observe('dualpath_request_wait_seconds', waitedS);
        break;
      case 'ended':
        if (ranS !== undefined) metrics.observe('dualpath_request_run_seconds', ranS, { outcome });
        if (error !== undefined) metrics.count('dualpath_errors_total', { code: codeOf(error) });
        break;
      case 'returned':
        metrics.count('dualpath_retries_total');
        break;
      case 'dropped':
        metrics.count('dualpath_lease_dropped_total', { what });
        break;
      case 'engine':
        metrics.count('dualpath_lease_engine_changes_total', { change });
        break;
      case 'clock':
        metrics.count('dualpath_lease_clock_leaps_total');
        break;
      default: // counted by its name
    }
  };
}

function codeOf(error: unknown): string {
  return isDualPathError(error) ? error.code : 'INTERNAL';
}
