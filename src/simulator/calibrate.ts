/** Fits the four constants to named points, and says how well they are known. */
import type { TaskOptions } from '../threads/index.js';
import { fittedConstants, type FittedConstants } from './constants.js';
import { publishedOnline, readOffError } from './published.js';
import type { RunResult } from './run.js';
import type { SweepTask } from './sweep.js';
import { sweep } from './sweep.js';

export interface CalibrationPoint {
  readonly name: string;
  readonly published: number;
  readonly task: SweepTask;
  readonly value: (result: RunResult) => number;
}

const together = (agents: number, mode: 'basic' | 'layerwise' | 'dualpath' | 'oracle'): SweepTask => ({
  workload: '64k',
  deployment: { mode },
  arrivals: { kind: 'together', agents },
  stop: { maxVirtualS: 1e6 },
});

/** Steady state of online runs: the first half hour is not measured. */
export const onlineStop = { maxVirtualS: 5400, warmupS: 1800 } as const;

const poisson = (agentsPerS: number): SweepTask => ({
  workload: '64k',
  deployment: { mode: 'dualpath' },
  arrivals: { kind: 'poisson', agentsPerS, untilS: onlineStop.maxVirtualS },
  stop: onlineStop,
});

const makespan = ({ makespanS }: RunResult): number => makespanS;

/** All of DS 660B, 2P4D. */
export const calibrationPoints: readonly CalibrationPoint[] = [
  { name: 'jct 2048 basic', published: 10_100, task: together(2048, 'basic'), value: makespan },
  { name: 'jct 2048 layerwise', published: 8750, task: together(2048, 'layerwise'), value: makespan },
  { name: 'jct 2048 dualpath', published: 5450, task: together(2048, 'dualpath'), value: makespan },
  { name: 'jct 512 oracle', published: 2000, task: together(512, 'oracle'), value: makespan },
  {
    name: 'online 0.4 tpot',
    published: publishedOnline.tpotS,
    task: poisson(0.4),
    value: ({ tpotMeanS }) => tpotMeanS,
  },
  {
    name: 'online 0.1 agent time',
    published: publishedOnline.agentLowS,
    task: poisson(0.1),
    value: ({ agentS }) => agentS.mean,
  },
];

const names = [
  'prefillFlopsPerS',
  'snicEfficiency',
  'decodeBaseS',
  'decodePerSequenceS',
] as const satisfies readonly (keyof FittedConstants)[];

export interface Calibration {
  readonly constants: FittedConstants;
  readonly points: readonly {
    readonly name: string;
    readonly published: number;
    readonly ours: number;
    /** Ours over published less 1. */
    readonly error: number;
    /** The same with constants refitted without the point. */
    readonly leftOutError: number;
  }[];
  readonly rmsError: number;
  /** 95 %, by the linearised fit with the larger of residuals and read-off error. */
  readonly intervals: Readonly<Record<keyof FittedConstants, readonly [number, number]>>;
  readonly correlations: readonly { readonly pair: string; readonly correlation: number }[];
}

/** Relative change by which the slopes are taken: far above the noise of a run, which is about 0.3 %. */
const step = 0.05;
/** Student's t for two degrees of freedom (six points, four constants), two-sided 95 %. */
const t95 = 4.303;

/** Gauss and Newton on logarithms of constants and figures. */
export async function calibrate(
  options: TaskOptions & { readonly rounds: number; readonly onRound?: (rms: number) => void },
): Promise<Calibration> {
  let constants = fittedConstants;
  for (let round = 0; ; round++) {
    const { residuals, slopes } = await linearise(constants, options);
    options.onRound?.(rmsOf(residuals));
    if (round === options.rounds) return describe(constants, residuals, slopes);
    const change = leastSquares(slopes, residuals);
    constants = moved(constants, change);
  }
}

function moved(constants: FittedConstants, logChange: readonly number[]): FittedConstants {
  const result = { ...constants };
  for (const [index, name] of names.entries()) {
    // No further than the slopes may be trusted.
    (result as Record<string, number>)[name] =
      constants[name] * Math.exp(Math.max(-0.15, Math.min(0.15, logChange[index]!)));
  }
  return result;
}

async function linearise(
  constants: FittedConstants,
  options: TaskOptions,
): Promise<{ residuals: number[]; slopes: number[][] }> {
  const sets = [
    constants,
    ...names.map((_, index) =>
      moved(
        constants,
        names.map((__, other) => (other === index ? step : 0)),
      ),
    ),
  ];
  const tasks = sets.flatMap((set) =>
    calibrationPoints.map(({ task }) => ({ ...task, deployment: { ...task.deployment, constants: set } })),
  );
  const results = await sweep(tasks, options);
  const logs = results.map((result, index) => {
    if (result === undefined) throw new DOMException('the calibration was interrupted', 'AbortError');
    const point = calibrationPoints[index % calibrationPoints.length]!;
    return Math.log(point.value(result) / point.published);
  });
  const rows = calibrationPoints.length;
  const residuals = logs.slice(0, rows);
  const slopes = residuals.map((residual, row) =>
    names.map((_, column) => (logs[(column + 1) * rows + row]! - residual) / step),
  );
  return { residuals, slopes };
}

function describe(constants: FittedConstants, residuals: number[], slopes: number[][]): Calibration {
  const inverse = invert(normal(slopes));
  const freedom = residuals.length - names.length;
  const rms = Math.sqrt(residuals.reduce((sum, value) => sum + value * value, 0) / freedom);
  const sigma = Math.max(rms, readOffError);
  const deviation = names.map((_, index) => sigma * Math.sqrt(inverse[index]![index]!));
  const intervals = Object.fromEntries(
    names.map((name, index) => {
      const width = t95 * deviation[index]!;
      return [name, [constants[name] * Math.exp(-width), constants[name] * Math.exp(width)]];
    }),
  ) as unknown as Calibration['intervals'];
  const correlations = names.flatMap((name, a) =>
    names.slice(a + 1).map((other, offset) => {
      const b = a + 1 + offset;
      const correlation = inverse[a]![b]! / Math.sqrt(inverse[a]![a]! * inverse[b]![b]!);
      return { pair: `${name}, ${other}`, correlation };
    }),
  );
  const points = calibrationPoints.map(({ name, published }, row) => ({
    name,
    published,
    ours: published * Math.exp(residuals[row]!),
    error: Math.expm1(residuals[row]!),
    leftOutError: Math.expm1(leftOut(slopes, residuals, row)),
  }));
  return { constants, points, rmsError: rmsOf(residuals), intervals, correlations };
}

/** The residual that a point would have if the constants were fitted without it. */
function leftOut(slopes: readonly number[][], residuals: readonly number[], row: number): number {
  const others = (_: unknown, index: number): boolean => index !== row;
  const change = leastSquares(slopes.filter(others), residuals.filter(others));
  return slopes[row]!.reduce((sum, slope, column) => sum + slope * change[column]!, residuals[row]!);
}

function rmsOf(values: readonly number[]): number {
  return Math.sqrt(values.reduce((sum, value) => sum + value * value, 0) / values.length);
}

/** What change of the constants takes residuals away, in the least squares. */
function leastSquares(slopes: readonly number[][], residuals: readonly number[]): number[] {
  const inverse = invert(normal(slopes));
  const right = names.map((_, column) =>
    slopes.reduce((sum, row, index) => sum - row[column]! * residuals[index]!, 0),
  );
  return inverse.map((row) => row.reduce((sum, value, column) => sum + value * right[column]!, 0));
}

function normal(slopes: readonly number[][]): number[][] {
  return names.map((_, a) => names.map((__, b) => slopes.reduce((sum, row) => sum + row[a]! * row[b]!, 0)));
}

/** Gauss and Jordan with pivots, for a handful of rows. */
function invert(matrix: readonly (readonly number[])[]): number[][] {
  const size = matrix.length;
  const rows = matrix.map((row, index) => [...row, ...row.map((_, column) => (column === index ? 1 : 0))]);
  for (let column = 0; column < size; column++) {
    let pivot = column;
    for (let row = column + 1; row < size; row++) {
      if (Math.abs(rows[row]![column]!) > Math.abs(rows[pivot]![column]!)) pivot = row;
    }
    [rows[column], rows[pivot]] = [rows[pivot]!, rows[column]!];
    const head = rows[column]![column]!;
    rows[column] = rows[column]!.map((value) => value / head);
    for (let row = 0; row < size; row++) {
      if (row === column) continue;
      const factor = rows[row]![column]!;
      rows[row] = rows[row]!.map((value, place) => value - factor * rows[column]![place]!);
    }
  }
  return rows.map((row) => row.slice(size));
}
