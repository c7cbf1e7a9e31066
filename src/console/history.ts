/** The scheduler's figures over the last minutes, a point a second. */
import type { AdmissionStatistics } from '../scheduler/index.js';

export interface HistoryPoint {
  /** Unix time. */
  readonly atS: number;
  readonly waiting: number;
  readonly running: number;
  readonly assignedPerS: number;
  readonly completedPerS: number;
  /** Blocks whose reading was assigned to each side. */
  readonly prefillReadBlocksPerS: number;
  readonly decodeReadBlocksPerS: number;
}

const maxPoints = 300;

export class History {
  readonly #points: HistoryPoint[] = [];
  #last: { readonly atS: number; readonly statistics: AdmissionStatistics } | undefined;

  /** @param atS Unix time; times that do not advance are ignored */
  add(atS: number, statistics: AdmissionStatistics): void {
    const last = this.#last;
    this.#last = { atS, statistics };
    if (last === undefined || atS <= last.atS) return;
    // A new scheduler counts from the start.
    const perS = (of: (s: AdmissionStatistics) => number): number =>
      Math.max(0, of(statistics) - of(last.statistics)) / (atS - last.atS);
    this.#points.push({
      atS,
      waiting: statistics.waiting,
      running: statistics.running,
      assignedPerS: perS(({ admitted }) => admitted),
      completedPerS: perS(({ completed }) => completed),
      prefillReadBlocksPerS: perS(({ prefillReadBlocks }) => prefillReadBlocks),
      decodeReadBlocksPerS: perS(({ decodeReadBlocks }) => decodeReadBlocks),
    });
    if (this.#points.length > maxPoints) this.#points.shift();
  }

  points(): readonly HistoryPoint[] {
    return this.#points;
  }
}
