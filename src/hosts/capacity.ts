import type { EngineCapacity } from '../scheduler/index.js';

/** What an engine process is to the scheduler: a node and a group of its own. */
export function capacityOf(
  engine: string,
  role: 'prefill' | 'decode',
  { bufferBlocks, hbmBlocks }: { readonly bufferBlocks: number; readonly hbmBlocks: number },
  snicBytesPerS: number,
): EngineCapacity {
  return {
    ...{ engine, role, bufferBlocks, group: engine, node: `${role}-node-${engine}` },
    hbmBlocks: role === 'prefill' ? 0 : hbmBlocks,
    // Only the relation of rates counts: equal where the hosts' own storage sets the pace.
    readRateBytesPerS: snicBytesPerS || 1e9,
  };
}
