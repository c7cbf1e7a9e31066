import type { Cluster } from './cluster.js';
import type { Instance } from './instance.js';
import type { Move } from './policy.js';
import type { RoutedRequest } from './request.js';

export interface RebalanceOptions {
  /** Where a request may go: its other candidate (the paper), or the least loaded of all (released code). */
  readonly targets: 'pair' | 'any';
}

/** Waiting requests of one instance that one round looks at, the oldest first. */
export const rebalanceRequestsMax = 1024;

interface Planned {
  readonly request: RoutedRequest;
  readonly to: Instance;
  readonly benefitS: number;
  /** TTFT where it is, and without the queue where it would go. */
  readonly hereS: number;
  readonly thereBesidesQueueS: number;
}

/**
 * Hotspot-aware rebalancing (DualMap): waiting requests of an overloaded instance may go to their other candidate. The
 * benefit of a move is B = TTFT(r, here) - TTFT(r, there), with hits looked up anew; those with B > 0 and
 * TTFT(r, there) < SLO move by falling B, each judged once more by what the moves before it have put there, until the
 * source meets the SLO. One round, no recursion. Returns how many moved.
 */
export function rebalance(source: Instance, cluster: Cluster, options: RebalanceOptions, move: Move): number {
  // In a cluster that is overloaded as a whole there is nothing to look up.
  if (!cluster.routable.some((instance) => instance !== source && cluster.queueS(instance) < cluster.sloS)) {
    return 0;
  }
  const planned = plan(source, cluster, options);
  planned.sort((a, b) => b.benefitS - a.benefitS);
  let moved = 0;
  for (const { request, to, hereS, thereBesidesQueueS } of planned) {
    if (cluster.queueS(source) <= cluster.sloS) break;
    const thereS = thereBesidesQueueS + cluster.queueS(to);
    if (thereS >= cluster.sloS || thereS >= hereS) continue;
    move(request, to);
    moved++;
  }
  return moved;
}

function plan(source: Instance, cluster: Cluster, options: RebalanceOptions): Planned[] {
  const planned: Planned[] = [];
  const least = options.targets === 'any' ? leastLoaded(cluster) : undefined;
  let aheadS = cluster.dispatchedS(source) + source.foreignTokens * cluster.prefillSPerToken;
  let looked = 0;
  for (let request = source.waiting.first; request !== null; request = request.next) {
    if (++looked > rebalanceRequestsMax) break;
    const waitedS = cluster.nowS - request.submittedS;
    aheadS += cluster.computeS(request, cluster.hits(request, source));
    const hereS = waitedS + aheadS;
    const other = request.primary === source ? request.secondary : request.primary;
    for (const to of least === undefined || least === other ? [other] : [other, least]) {
      if (to === null || to === source || !to.routable) continue;
      const thereBesidesQueueS = waitedS + cluster.computeS(request, cluster.hits(request, to));
      const thereS = thereBesidesQueueS + cluster.queueS(to);
      if (thereS >= hereS || thereS >= cluster.sloS) continue;
      planned.push({ request, to, benefitS: hereS - thereS, hereS, thereBesidesQueueS });
      break;
    }
  }
  return planned;
}

function leastLoaded(cluster: Cluster): Instance | undefined {
  let best: Instance | undefined;
  for (const instance of cluster.routable) {
    if (best === undefined || cluster.queueS(instance) < cluster.queueS(best)) best = instance;
  }
  return best;
}
