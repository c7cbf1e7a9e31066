/** What follows from the paper's formulas alone, with its slips corrected (section on bottleneck-free configurations). */

export interface NodeRates {
  /** g. */
  readonly gpusPerNode: number;
  /** B, one direction. */
  readonly cnicBytesPerS: number;
  /** B s. */
  readonly snicBytesPerS: number;
  /** M. */
  readonly dramBytesPerS: number;
}

export interface RatioBound {
  /** On prefill nodes over decode nodes. */
  readonly limit: number;
  readonly name: string;
}

export interface RatioRange {
  /** P/D must be at least that. */
  readonly lower: RatioBound;
  /** P/D must be at most that; `name` is the bound that binds. */
  readonly upper: RatioBound;
  readonly upperBounds: readonly RatioBound[];
  /** Bounds that no P/D can meet. */
  readonly violated: readonly string[];
}

/**
 * The range of P/D in which neither compute NICs nor DRAM become a bottleneck while every storage NIC is saturated:
 * T_p = B s / (D g^2), T_c = B s / (P g^2) a pair of engines, and each link's sum at most its rate.
 */
export function ratioRange({
  gpusPerNode: g,
  cnicBytesPerS,
  snicBytesPerS,
  dramBytesPerS,
}: NodeRates): RatioRange {
  const s = snicBytesPerS / cnicBytesPerS;
  const violated: string[] = [];
  if (s > g / 2) violated.push(`PE CNIC read: s = ${s} is above g/2 = ${g / 2}`);
  if (2 * snicBytesPerS > dramBytesPerS) violated.push('PE DRAM: 2 B s is above M');
  const upperBounds: RatioBound[] = [
    { name: 'DE CNIC read: (g - 2s)/s', limit: (g - 2 * s) / s },
    { name: 'DE CNIC write: (g - s)/(2s)', limit: (g - s) / (2 * s) },
    { name: 'DE DRAM: (M/(B s) - 3)/2', limit: (dramBytesPerS / snicBytesPerS - 3) / 2 },
  ];
  const upper = upperBounds.reduce((least, bound) => (bound.limit < least.limit ? bound : least));
  const lower = { name: 'PE CNIC write: s/(g - s)', limit: s < g ? s / (g - s) : Number.MAX_VALUE };
  if (lower.limit > upper.limit) violated.push(`${lower.name} is above ${upper.name}`);
  return { lower, upper, upperBounds, violated };
}

/**
 * The floor of KV-Cache's virtual lane under InfiniBand's arbitration: the high table may send `limit` units of 4 KiB
 * before the low one gets an opportunity, in which the lane has its weight among all.
 *
 * @returns the least and the most share of bandwidth: one packet, or a turn of full weights, an opportunity
 */
export function laneFloor(
  highLimit: number,
  weight: number,
  weights: readonly number[],
): { readonly low: number; readonly high: number } {
  const highBytes = highLimit * 4096;
  const all = weights.reduce((sum, value) => sum + value, 0);
  const share = weight / all;
  // An opportunity is at least a packet of 4 KiB of any lane, at most the lane's weight in 64-byte units.
  const low = (share * 4096) / (highBytes + 4096);
  const high = (weight * 64) / (highBytes + weight * 64);
  return { low, high };
}

/** Bytes of KV-Cache that agents at work have: arrivals a second x their time x half their final length. */
export function workingSetBytes(
  agentsPerS: number,
  jobS: number,
  finalTokens: number,
  bytesPerToken: number,
): number {
  return ((agentsPerS * jobS * finalTokens) / 2) * bytesPerToken;
}
