import { SeededRandom } from '../scheduler/index.js';
import type { RouteTrace } from './trace.js';

/**
 * When each request comes, in seconds, at a mean rate of `qps`. Traces record times in bins (3 s in the conversation
 * trace, up to 28 requests each): the requests of one time are spread, by the seed, over the time until the next. Then
 * time is stretched to the rate. The order stays.
 */
export function arrivalTimesS(trace: Pick<RouteTrace, 'arrivalMs'>, qps: number, seed: number): Float64Array {
  const random = new SeededRandom(seed);
  const { arrivalMs } = trace;
  const count = arrivalMs.length;
  const timesS = new Float64Array(count);
  for (let first = 0; first < count;) {
    let end = first + 1;
    while (end < count && arrivalMs[end] === arrivalMs[first]) end++;
    const fromMs = arrivalMs[first]!;
    // The last bin is as long as the one before it.
    const binMs = end < count ? arrivalMs[end]! - fromMs : first > 0 ? fromMs - arrivalMs[first - 1]! : 1000;
    for (let i = first; i < end; i++) timesS[i] = (fromMs + (binMs * random.below(2 ** 32)) / 2 ** 32) / 1000;
    timesS.subarray(first, end).sort();
    first = end;
  }
  const startS = timesS[0] ?? 0;
  const factor = count > 1 ? count / qps / Math.max(1e-9, timesS[count - 1]! - startS) : 1;
  return timesS.map((timeS) => (timeS - startS) * factor);
}
