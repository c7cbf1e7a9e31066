import { dataSets, dataSetStatistics, generateTrace, type DataSetName } from '../../trace/index.js';
import { laneFloor, ratioRange } from '../bounds.js';
import { hardwareOf } from '../hardware.js';
import { cacheToCompute, modelCostOf } from '../model-cost.js';
import { frozenDataSets, trajectories } from '../workload.js';
import { row, type FigureRow } from './row.js';

/** GB a PFLOP from 16K to 64K of context, 429 tokens appended. */
const table1: readonly (readonly [model: string, low: number, high: number])[] = [
  ['qwen2.5-32b', 117, 267],
  ['gpt-oss-120b', 47, 95],
  ['qwen3-235b-a22b', 39, 60],
  ['ds-v3.2-660b', 13, 36],
  ['ds-v3-660b', 4.8, 5.8],
];

/** Published to two or three digits, and of configurations that the paper does not spell out. */
const table1Tolerance = 0.12;

export function table1Rows(): FigureRow[] {
  return table1.flatMap(([name, low, high]) =>
    (
      [
        ['16K', 16_384, low],
        ['64K', 65_536, high],
      ] as const
    ).map(([label, context, published]) =>
      row({
        name: `${name} at ${label}`,
        section: 'table1',
        unit: 'GB/PFLOP',
        published,
        ours: cacheToCompute(modelCostOf(name), context, 429) * 1e6,
        kind: 'arithmetic',
        tolerance: table1Tolerance,
      }),
    ),
  );
}

export function boundRows(): FigureRow[] {
  const range = ratioRange(hardwareOf('hopper'));
  const lane = laneFloor(240, 64, [192, 192, 64, 192]);
  const common = { section: 'bounds', kind: 'arithmetic' } as const;
  return [
    row({
      ...common,
      name: 'least P/D',
      unit: '',
      published: 1 / 7,
      ours: range.lower.limit,
      tolerance: 0.001,
      note: range.lower.name,
    }),
    row({
      ...common,
      name: 'most P/D',
      unit: '',
      published: 7 / 2,
      ours: range.upper.limit,
      tolerance: 0.001,
      note: range.upper.name,
    }),
    row({
      ...common,
      name: "KV-Cache's lane, least share",
      unit: '',
      published: 0.01,
      ours: lane.low,
      note: 'the paper says about 99 % to 1 %; by the InfiniBand arbitration of its own settings it is less',
    }),
    row({
      ...common,
      name: "KV-Cache's lane, most share",
      unit: '',
      published: 0.01,
      ours: lane.high,
      note: 'see above',
    }),
  ];
}

/** Inputs made to match: they say what the runs below were fed. */
export function workloadRows(): FigureRow[] {
  return (Object.keys(dataSets) as DataSetName[]).flatMap((dataSet) => {
    const { seed } = frozenDataSets[dataSet];
    const ours = dataSetStatistics(generateTrace({ dataSet, trajectories, seed }));
    const { published } = dataSets[dataSet];
    return (Object.keys(published) as (keyof typeof published)[]).map((column) =>
      row({
        name: `${dataSet} ${column.replace(/[A-Z].*$/, '')}`,
        section: 'workload',
        unit: column === 'turns' ? '' : 'tokens',
        published: published[column],
        ours: ours[column],
        kind: 'structural',
        tolerance: 0.05,
        note: 'the generator is made to match',
      }),
    );
  });
}
