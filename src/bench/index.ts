/** Benchmarks that `dualpath bench` runs. */
export { benchRing, type RingOptions, type RingResult } from './ring.js';
export { benchRouter, type RouterBenchOptions, type RouterBenchResult, type RouterResult } from './router.js';
