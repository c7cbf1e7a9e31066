/** What the page shows, as one document a second. */
import type { AdmissionStatistics, EngineState } from '../scheduler/index.js';
import type { HistoryPoint } from './history.js';

/** A scheduler as the page sees it: `Admission`, `LocalScheduler`, the one of a lease ledger. */
export interface ConsoleSource {
  statistics(): AdmissionStatistics;
  engines(): Iterable<EngineState>;
  epoch(): number;
}

export interface EngineRow {
  readonly engine: string;
  readonly role: string;
  readonly node: string;
  readonly state: 'open' | 'closed' | 'lost';
  readonly requests: number;
  readonly tokens: number;
  readonly bufferBlocks: number;
  readonly hbmBlocks: number;
}

export interface NodeRow {
  readonly node: string;
  /** Blocks that are queued on its storage link. */
  readonly readQueueBlocks: number;
  readonly engines: number;
}

export interface ConsoleSnapshot {
  readonly epoch: number;
  readonly statistics: AdmissionStatistics;
  readonly nodes: readonly NodeRow[];
  readonly engines: readonly EngineRow[];
  readonly history: readonly HistoryPoint[];
  readonly latestRequests: readonly string[];
}

export function snapshotOf(
  source: ConsoleSource,
  history: readonly HistoryPoint[],
  latestRequests: readonly string[],
): ConsoleSnapshot {
  const nodes = new Map<string, { node: string; readQueueBlocks: number; engines: number }>();
  const engines: EngineRow[] = [];
  for (const engine of source.engines()) {
    engines.push(rowOf(engine));
    const { node } = engine.capacity;
    const row = nodes.get(node) ?? { node, readQueueBlocks: engine.link.readQueueBlocks, engines: 0 };
    row.engines++;
    nodes.set(node, row);
  }
  return {
    epoch: source.epoch(),
    statistics: source.statistics(),
    nodes: [...nodes.values()],
    engines,
    history,
    latestRequests,
  };
}

function rowOf(engine: EngineState): EngineRow {
  const { capacity, unfinishedRequests, unfinishedTokens, bufferBlocks, hbmBlocks } = engine;
  const state = engine.lost ? 'lost' : engine.closed ? 'closed' : 'open';
  const { role, node } = capacity;
  const name = capacity.engine;
  return {
    engine: name,
    role,
    node,
    state,
    requests: unfinishedRequests,
    tokens: unfinishedTokens,
    bufferBlocks,
    hbmBlocks,
  };
}
