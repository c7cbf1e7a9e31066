import { modelCostOf } from '../model-cost.js';
import type { SimulatedMode } from '../modes.js';
import { readOffError } from '../published.js';
import { ratio } from './offline.js';
import { row, type FigureRow } from './row.js';
import type { Results, Task } from './tasks.js';

const largeAgents = 48 * 1024;

export function scaleTasks(isQuick: boolean): Task[] {
  const together = (id: string, nodes: readonly [number, number], agents: number): Task => ({
    id,
    kind: 'run',
    workload: '48k',
    deployment: { mode: 'dualpath', prefillNodes: nodes[0], decodeNodes: nodes[1] },
    arrivals: { kind: 'together', agents },
    stop: { maxVirtualS: 1e6 },
  });
  const small = together('scale 2P4D', [2, 4], 2048);
  return isQuick ? [small] : [small, together('scale 48P96D', [48, 96], largeAgents)];
}

export function scaleRows(results: Results): FigureRow[] {
  const small = results.run('scale 2P4D');
  const large = results.run('scale 48P96D');
  const note = 'the data set is not stated; 48K fits by far the best';
  return [
    row({
      name: 'JCT, 2P4D, 2,048 agents',
      section: 'scale',
      unit: 's',
      published: 3167,
      ours: small?.makespanS,
      kind: 'predicted',
      tolerance: 0.2,
      note,
    }),
    row({
      name: 'JCT, 48P96D, 49,152 agents',
      section: 'scale',
      unit: 's',
      published: 3201,
      ours: large?.makespanS,
      kind: 'predicted',
      tolerance: 0.2,
      note,
    }),
    row({
      name: 'JCT, 48P96D over 2P4D',
      section: 'scale',
      unit: 'x',
      published: 3201 / 3167,
      ours: ratio(large?.makespanS, small?.makespanS),
      kind: 'predicted',
      tolerance: 0.03,
    }),
  ];
}

const shapes = [
  [1, 1],
  [1, 2],
  [2, 1],
] as const;

const agents27b = 2048;
const id27b = (p: number, d: number, mode: SimulatedMode): string => `ds-27b ${p}P${d}D ${mode}`;

export function ds27bTasks(isQuick: boolean): Task[] {
  return shapes
    .filter(([p, d]) => !isQuick || (p === 1 && d === 2))
    .flatMap(([prefillNodes, decodeNodes]) =>
      (['basic', 'dualpath'] as const).map((mode): Task => ({
        id: id27b(prefillNodes, decodeNodes, mode),
        kind: 'run',
        workload: '64k',
        deployment: { mode, prefillNodes, decodeNodes, model: modelCostOf('ds-27b') },
        arrivals: { kind: 'together', agents: agents27b },
        stop: { maxVirtualS: 1e6 },
      })),
    );
}

export function ds27bRows(results: Results): FigureRow[] {
  const jct = (p: number, d: number, mode: SimulatedMode): number | undefined =>
    results.run(id27b(p, d, mode))?.makespanS;
  const common = { section: 'ds27b', kind: 'predicted' } as const;
  const equal = (name: string, a: number | undefined, b: number | undefined, tolerance: number): FigureRow =>
    row({ ...common, name, unit: 'x', published: 1, ours: ratio(a, b), tolerance });
  const note = `${agents27b} agents, which the paper does not state`;
  return [
    equal('Basic 1P1D over Basic 1P2D', jct(1, 1, 'basic'), jct(1, 2, 'basic'), 0.05),
    equal('DualPath 1P1D over Basic 2P1D', jct(1, 1, 'dualpath'), jct(2, 1, 'basic'), 0.05),
    equal('DualPath 2P1D over DualPath 1P2D', jct(2, 1, 'dualpath'), jct(1, 2, 'dualpath'), 0.12),
    row({
      ...common,
      name: 'DualPath over Basic, 1P2D',
      unit: 'x',
      published: 2.46,
      ours: ratio(jct(1, 2, 'basic'), jct(1, 2, 'dualpath')),
      tolerance: { least: 2.2, most: 2.8 },
    }),
    row({
      ...common,
      name: 'DualPath over Basic, 1P1D',
      unit: 'x',
      published: 1.78,
      ours: ratio(jct(1, 1, 'basic'), jct(1, 1, 'dualpath')),
      tolerance: 0.18,
    }),
    row({
      ...common,
      name: 'JCT, Basic, 1P2D',
      unit: 's',
      published: 8300,
      ours: jct(1, 2, 'basic'),
      readOffError,
      note,
    }),
    row({
      ...common,
      name: 'JCT, DualPath, 1P2D',
      unit: 's',
      published: 3400,
      ours: jct(1, 2, 'dualpath'),
      readOffError,
      note,
    }),
  ];
}
