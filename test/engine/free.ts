import type { BlockSpace } from '../../src/memory/index.js';
import type { TrafficManager } from '../../src/traffic/index.js';

/** What an engine has free of everything that a request may hold. */
export type Free = Readonly<
  Record<'counters' | 'slotTable' | 'keyTable' | 'programs' | 'buffer' | 'hbm', number>
>;

export function freeOf({ engine, buffer }: TrafficManager, hbm: BlockSpace): Free {
  return {
    counters: engine.counters.available,
    slotTable: engine.slotTable.available,
    keyTable: engine.keyTable.available,
    programs: engine.room.programs,
    buffer: buffer.available,
    hbm: hbm.available,
  };
}
