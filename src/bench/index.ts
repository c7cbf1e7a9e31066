/** Benchmarks that `dualpath bench` runs. */
export { benchRing, type RingOptions, type RingResult } from './ring.js';
