import { Admission, type EngineCapacity } from '../scheduler/index.js';
import { Cells, type CellHooks } from './cells.js';
import { modePlans } from './modes.js';
import { RoundRobin, type SimulatedScheduler } from './round-robin.js';
import type { ClusterSettings } from './settings.js';

/** Requests may wait in numbers: agents of a large cluster all come at once. */
const maxWaiting = 1 << 22;

/** A node a group. Names are short: they are looked up at every assignment. */
export function capacities(settings: ClusterSettings): EngineCapacity[] {
  const { blockTokens, bytesPerToken, enginesPerNode, snicBytesPerS } = settings;
  const blocks = (bytes: number): number => Math.floor(bytes / (blockTokens * bytesPerToken));
  const of = (role: 'prefill' | 'decode', nodes: number): EngineCapacity[] =>
    Array.from({ length: nodes * enginesPerNode }, (_, index) => {
      const node = `${role[0]}${Math.floor(index / enginesPerNode)}`;
      return {
        engine: `${node}.${index % enginesPerNode}`,
        node,
        group: node,
        role,
        bufferBlocks: blocks(role === 'prefill' ? settings.prefillBufferBytes : settings.decodeBufferBytes),
        hbmBlocks: role === 'prefill' ? 0 : blocks(settings.decodeHbmBytes),
        readRateBytesPerS: snicBytesPerS,
      };
    });
  return [...of('prefill', settings.prefillNodes), ...of('decode', settings.decodeNodes)];
}

/** The scheduler of a cluster, or of many and the router in front of them. */
export function schedulerOf(
  settings: ClusterSettings,
  engines: readonly EngineCapacity[],
  hooks: Pick<CellHooks, 'nowS' | 'agent'>,
): SimulatedScheduler {
  const { cells } = settings;
  if (cells === undefined) return schedulerOver(settings, engines);
  return new Cells(settings, cells, engines, {
    ...hooks,
    scheduler: (own) => schedulerOver(settings, own),
  });
}

function schedulerOver(settings: ClusterSettings, engines: readonly EngineCapacity[]): SimulatedScheduler {
  const { policy } = modePlans[settings.mode];
  const { blockTokens, bytesPerToken, decodeSpareBlocks, alphaS, betaTokens, hitTokenWeight, seed } =
    settings;
  if (!settings.isScheduled) {
    const sides = policy === 'prefill' ? 'prefill' : 'in turn';
    return new RoundRobin({ engines, blockTokens, decodeSpareBlocks, sides });
  }
  return new Admission({
    engines,
    policy,
    blockTokens,
    blockBytes: blockTokens * bytesPerToken,
    decodeSpareBlocks,
    maxWaiting,
    seed,
    alphaS,
    betaTokens,
    hitTokenWeight,
    adaptLinkRates: settings.adaptLinkRates,
    ...(settings.slackSPerToken > 0
      ? { order: 'slack' as const, slackSPerToken: settings.slackSPerToken }
      : {}),
  });
}
