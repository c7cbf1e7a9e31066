/** Benchmarks that `dualpath bench` runs. */
export { benchRing, type RingOptions, type RingResult } from './ring.js';
export {
  benchScheduler,
  type SchedulerBenchOptions,
  type SchedulerBenchResult,
  type SchedulerSizeResult,
} from './scheduler.js';
