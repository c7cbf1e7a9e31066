/** A mean over seeds and its 95 % confidence interval by Student's t; no interval of a single value. */
export interface Estimate {
  readonly mean: number;
  readonly low: number;
  readonly high: number;
  readonly seeds: number;
}

/** Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom. */
const t95 = [
  12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131,
  2.12, 2.11, 2.101, 2.093, 2.086, 2.08, 2.074, 2.069, 2.064, 2.06, 2.056, 2.052, 2.048, 2.045, 2.042,
] as const;

/** @param values at least one */
export function estimate(values: readonly number[]): Estimate {
  const count = values.length;
  const mean = values.reduce((sum, value) => sum + value, 0) / count;
  if (count < 2) return { mean, low: mean, high: mean, seeds: count };
  const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (count - 1);
  const half = (t95[count - 2] ?? 1.96) * Math.sqrt(variance / count);
  return { mean, low: mean - half, high: mean + half, seeds: count };
}

/** Pairs of one seed each: the mean of a/b, which is what differs between policies and not between seeds. */
export function pairedRatio(a: readonly number[], b: readonly number[]): Estimate {
  const ratios: number[] = [];
  for (const [i, value] of a.entries()) {
    const under = b[i];
    if (under !== undefined && under > 0) ratios.push(value / under);
  }
  return ratios.length === 0 ? { mean: 0, low: 0, high: 0, seeds: 0 } : estimate(ratios);
}

export interface Goodput {
  readonly qps: number;
  /** The highest rate of the grid still met the target: the goodput is at least this. */
  readonly isAtLeast: boolean;
}

/**
 * The highest rate at which `target` of the requests meet the SLO: the highest of the grid, and from there linearly
 * towards the next, which does not. Below the grid the line comes from rate 0, where all requests meet it.
 */
export function goodputOf(grid: readonly number[], attainment: readonly number[], target = 0.9): Goodput {
  let best = -1;
  for (const [i, share] of attainment.entries()) if (share >= target) best = i;
  if (best === grid.length - 1) return { qps: grid[best]!, isAtLeast: true };
  const [fromQps, fromShare] = best < 0 ? [0, 1] : [grid[best]!, attainment[best]!];
  const [toQps, toShare] = [grid[best + 1]!, attainment[best + 1]!];
  return {
    qps: fromQps + ((fromShare - target) / (fromShare - toShare)) * (toQps - fromQps),
    isAtLeast: false,
  };
}
