import { HotnessTree } from '../hotness.js';
import type { RoutedRequest } from '../request.js';

/**
 * How many leading blocks of a prompt are shared by more than half of all requests (of the last 1,000): a template, not
 * a reason to go where it is cached. With it, every request would follow the first to one instance.
 */
export class CommonPrefix {
  readonly #tree = new HotnessTree({
    window: 1000,
    extendAbove: 0.5,
    shrinkBelow: 0.5,
    minSamples: 20,
    maxNodes: 1 << 15,
  });

  /** Counts the request, once a request. */
  blocksOf(request: RoutedRequest): number {
    const { keys, firstBlock, blocks } = request;
    const depth = this.#tree.depthOf(keys, firstBlock, blocks);
    this.#tree.observe(keys, firstBlock, blocks, 1);
    return Math.max(0, depth - 1);
  }
}
