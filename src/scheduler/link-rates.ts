import type { LinkEntry } from './ledger.js';

/** Seconds of busy time after which half of what was measured before no longer counts. */
const halfLifeS = 5;
/** Below this share of the nominal rate a measurement is taken for a stall, and the link still gets some work. */
const leastShare = 0.05;

interface Measured {
  readonly nominalBytesPerS: number;
  bytes: number;
  busyS: number;
}

/**
 * Follows the rate that each storage link really has while it is busy, from the engines' reports, so that the
 * read side and the split are chosen by it: a link may be shared with others, or be slower than it says.
 * Bytes and busy time fade alike with busy time; the nominal rate stands at the start, as if it had been
 * measured for one second. Without `adapt` the nominal rates stay.
 */
export class LinkRates {
  readonly #adapt: boolean;
  readonly #measured = new WeakMap<LinkEntry, Measured>();

  constructor(adapt: boolean) {
    this.#adapt = adapt;
  }

  measured(link: LinkEntry, { bytes, busyS }: { readonly bytes: number; readonly busyS: number }): void {
    if (!this.#adapt || busyS === 0) return;
    const rate = link.readRateBytesPerS;
    const state = this.#measured.get(link) ?? { nominalBytesPerS: rate, bytes: rate, busyS: 1 };
    this.#measured.set(link, state);
    const fade = 0.5 ** (busyS / halfLifeS);
    state.bytes = state.bytes * fade + bytes;
    state.busyS = state.busyS * fade + busyS;
    link.readRateBytesPerS = Math.max(state.bytes / state.busyS, leastShare * state.nominalBytesPerS);
  }
}
