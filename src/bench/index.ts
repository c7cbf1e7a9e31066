/** Benchmarks that `dualpath bench` runs. */
export { benchRing, type RingOptions, type RingResult } from './ring.js';
export {
  benchScheduler,
  type SchedulerBenchOptions,
  type SchedulerBenchResult,
  type SchedulerSizeResult,
} from './scheduler.js';
export { benchBalance, type BalanceOptions, type BalanceResult } from './balance.js';
export { benchTail, type TailOptions, type TailResult, type TailPolicy, type TailRun } from './tail.js';
