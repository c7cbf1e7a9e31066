import { EventHeap } from './event-heap.js';
import { runSweepTask } from './sweep.js';

export interface HeapRow {
  readonly pending: number;
  readonly eventsPerS: number;
  readonly nsPerEvent: number;
}

export interface ClusterRow {
  readonly cluster: string;
  readonly gpus: number;
  readonly agents: number;
  readonly virtualS: number;
  readonly requests: number;
  readonly events: number;
  readonly cpuS: number;
  readonly usPerRequest: number;
}

export interface SimulatorBenchResult {
  /** The event core by itself: an event is taken and another added, so many being pending. */
  readonly heap: readonly HeapRow[];
  /** ns an event over log2 of what is pending, the largest over the smallest: at most about 1 where cost grows with log n. */
  readonly growthOverLog: number;
  /** Whole clusters, scheduler and all. */
  readonly clusters: readonly ClusterRow[];
  readonly peakRssBytes: number;
}

export interface SimulatorBenchOptions {
  /** Of the whole clusters; 0: all that there is. */
  readonly virtualS: number;
  readonly signal?: AbortSignal;
  readonly onProgress?: (step: string) => void;
}

const pendingSizes = [1 << 10, 1 << 13, 1 << 16, 1 << 19] as const;
const clusters = [
  [2, 4, 2048],
  [48, 96, 49_152],
  [417, 833, 427_000],
] as const;

export function benchSimulator(options: SimulatorBenchOptions): SimulatorBenchResult {
  const heap = pendingSizes.map((pending) => {
    options.signal?.throwIfAborted();
    options.onProgress?.(`${pending} pending events`);
    return heapRow(pending);
  });
  const perLog = heap.map(({ nsPerEvent, pending }) => nsPerEvent / Math.log2(pending));
  const rows = clusters.map(([prefillNodes, decodeNodes, agents]) => {
    options.signal?.throwIfAborted();
    options.onProgress?.(`${prefillNodes}P${decodeNodes}D, ${agents} agents`);
    return clusterRow(prefillNodes, decodeNodes, agents, options.virtualS);
  });
  return {
    heap,
    growthOverLog: perLog.at(-1)! / perLog[0]!,
    clusters: rows,
    peakRssBytes: process.resourceUsage().maxRSS * 1024,
  };
}

/** The middle of three, each of a million events. */
function heapRow(pending: number): HeapRow {
  const rates = Array.from({ length: 3 }, () => hold(pending, 1_000_000)).sort((a, b) => a - b);
  return { pending, eventsPerS: rates[1]!, nsPerEvent: 1e9 / rates[1]! };
}

/** Processor time: the clock would count who else works here. */
function cpuS(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

/** The hold model: times go up by pseudo-random steps, so that the heap keeps its size. */
function hold(pending: number, count: number): number {
  const heap = new EventHeap(2 * pending);
  let state = 1;
  const step = (): number => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
  for (let event = 0; event < pending; event++) heap.add(step(), 0, event);
  const started = cpuS();
  for (let event = 0; event < count; event++) {
    heap.take();
    heap.add(heap.timeS + step(), 0, heap.index);
  }
  return count / (cpuS() - started);
}

function clusterRow(prefillNodes: number, decodeNodes: number, agents: number, virtualS: number): ClusterRow {
  const result = runSweepTask({
    workload: '48k',
    deployment: { mode: 'dualpath', prefillNodes, decodeNodes },
    arrivals: { kind: 'together', agents },
    stop: { maxVirtualS: virtualS === 0 ? 1e6 : virtualS },
  });
  return {
    cluster: `${prefillNodes}P${decodeNodes}D`,
    gpus: 8 * (prefillNodes + decodeNodes),
    agents,
    virtualS: result.makespanS,
    requests: result.turnsEnded,
    events: result.events,
    cpuS: result.cpuS,
    usPerRequest: (result.cpuS * 1e6) / Math.max(1, result.turnsEnded),
  };
}
