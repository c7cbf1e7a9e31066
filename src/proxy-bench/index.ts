/** The router's proxy beside others: throughput, added latency, many streams. */
export { type ContenderName } from './contenders.js';
export {
  benchProxy,
  defaultProxyBench,
  type LatencyRow,
  type ProxyBenchOptions,
  type ProxyBenchResult,
  type StreamsRow,
  type ThroughputRow,
} from './run.js';
