/**
 * How two things compare on a machine that drifts: slices of both alternate, and each adjacent pair gives one
 * ratio, so that what changes slowly falls out. Ratios are averaged as logarithms, as twice and half are equally
 * far from the same.
 */
import { DualPathError } from '../errors/index.js';

export interface RatioEstimate {
  /** exp(mean of log(ours / theirs) over the pairs). */
  readonly ratio: number;
  /** Half of the 95 % confidence interval (Student's t over the pairs), in units of the ratio. */
  readonly halfWidth: number;
}

export const ratioEstimator =
  'geometric mean of the ratios of adjacent slices, 95 % half-width by Student over the logarithms';

/** Two-sided 95 % quantiles of Student's t, for 1 to 30 degrees of freedom. */
const studentT95 = [
  12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131,
  2.12, 2.11, 2.101, 2.093, 2.086, 2.08, 2.074, 2.069, 2.064, 2.06, 2.056, 2.052, 2.048, 2.045, 2.042,
] as const;

/** @throws INVALID_ARGUMENT with fewer than two pairs or a value that is not above 0 */
export function estimateRatio(pairs: readonly (readonly [ours: number, theirs: number])[]): RatioEstimate {
  if (pairs.length < 2 || pairs.some(([ours, theirs]) => !(ours > 0 && theirs > 0))) {
    throw new DualPathError('INVALID_ARGUMENT', `${pairs.length} pairs; at least 2 are needed, all above 0`, {
      pairs: pairs.length,
    });
  }
  const logs = pairs.map(([ours, theirs]) => Math.log(ours / theirs));
  const mean = logs.reduce((sum, value) => sum + value, 0) / logs.length;
  const squares = logs.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  const error = Math.sqrt(squares / (logs.length - 1) / logs.length);
  const t = studentT95[logs.length - 2] ?? 1.96 + 2.4 / (logs.length - 1);
  return { ratio: Math.exp(mean), halfWidth: Math.exp(mean) * t * error };
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}
