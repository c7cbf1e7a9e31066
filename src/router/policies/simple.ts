import type { Cluster } from '../cluster.js';
import type { Instance } from '../instance.js';
import type { RoutingPolicy } from '../policy.js';
import { SeededRandom } from '../../scheduler/index.js';
import type { RoutedRequest } from '../request.js';

/** One instance after the other. */
export class RoundRobinPolicy implements RoutingPolicy {
  readonly name = 'round-robin';
  #next = 0;

  route(_request: RoutedRequest, cluster: Cluster): Instance {
    return cluster.routable[this.#next++ % cluster.routable.length]!;
  }
}

/** Fewest pending uncached tokens of all; ties by chance. */
export class LeastLoadedPolicy implements RoutingPolicy {
  readonly name = 'least-loaded';
  readonly #random: SeededRandom;

  constructor(seed: number) {
    this.#random = new SeededRandom(seed);
  }

  route(_request: RoutedRequest, cluster: Cluster): Instance {
    return leastBy(cluster.routable, this.#random, (instance) => cluster.queueS(instance));
  }
}

/** The less loaded of two different instances taken by chance. */
export class PowerOfTwoPolicy implements RoutingPolicy {
  readonly name = 'power-of-two';
  readonly #random: SeededRandom;

  constructor(seed: number) {
    this.#random = new SeededRandom(seed);
  }

  route(_request: RoutedRequest, cluster: Cluster): Instance {
    const { routable } = cluster;
    const first = this.#random.below(routable.length);
    if (routable.length === 1) return routable[first]!;
    const second = (first + 1 + this.#random.below(routable.length - 1)) % routable.length;
    const [a, b] = [routable[first]!, routable[second]!];
    return cluster.queueS(a) <= cluster.queueS(b) ? a : b;
  }
}

/** The instance with the least cost; one of several by chance. */
export function leastBy(
  instances: readonly Instance[],
  random: SeededRandom,
  cost: (instance: Instance) => number,
): Instance {
  let best = instances[0]!;
  let least = Infinity;
  let ties = 0;
  for (const instance of instances) {
    const its = cost(instance);
    if (its > least) continue;
    ties = its < least ? 1 : ties + 1;
    // The k-th of equals replaces the choice with probability 1/k, so all are equally likely.
    if (its < least || random.below(ties) === 0) best = instance;
    least = its;
  }
  return best;
}
