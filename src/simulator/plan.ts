import { DualPathError } from '../errors/index.js';
import type { TaskOptions } from '../threads/index.js';
import { ratioRange, workingSetBytes, type RatioRange } from './bounds.js';
import { fittedConstants, takenConstants } from './constants.js';
import { deployment, requestSecondsOf, settingsOf, warningsOf, type Deployment } from './deployment.js';
import type { Hardware } from './hardware.js';
import type { ModelCost } from './model-cost.js';
import type { RunResult } from './run.js';
import { runSweepTask, sweepAny, type AnyTask, type Capacity, type Objectives } from './sweep.js';
import { meansOf, type SimulatedWorkload } from './workload.js';

export interface PlanOptions extends TaskOptions {
  readonly nodes: number;
  readonly hardware: Hardware;
  readonly model: ModelCost;
  readonly workload: SimulatedWorkload;
  readonly objectives: Objectives;
  /** Agents of an offline job, for its time; none is asked for when absent. */
  readonly agents?: number | undefined;
  readonly seed: number;
}

export type Bottleneck = 'storage' | 'prefill' | 'decode';

/** What a division of the nodes can serve, by rates alone. */
export interface Estimate {
  readonly prefillNodes: number;
  readonly decodeNodes: number;
  readonly bottleneck: Bottleneck;
  readonly agentsPerS: number;
  /** By the resource alone. */
  readonly limits: Readonly<Record<Bottleneck, number>>;
  readonly isBottleneckFree: boolean;
}

export interface Sensitivity {
  readonly change: string;
  /** 'buy' is hardware; 'unknown' a constant at an end of what it is known to. */
  readonly kind: 'buy' | 'unknown';
  readonly capacityAps: number;
  readonly ratio: number;
}

export interface Plan {
  readonly range: RatioRange;
  readonly warnings: readonly string[];
  readonly isOutsideCalibration: boolean;
  /** The cluster is this many times what was simulated. */
  readonly scale: number;
  readonly estimates: readonly Estimate[];
  readonly best: Estimate;
  readonly enginesPerNode: number;
  readonly capacityAps: number;
  /** The least and most of the runs with a constant at an end of its interval. */
  readonly capacityInterval: readonly [number, number];
  /** At 80 % of the capacity. */
  readonly expected: {
    readonly aps: number;
    readonly ttftMeanS: number;
    readonly ttftP99S: number;
    readonly tpotS: number;
    readonly agentS: number;
    readonly workingSetBytes: number;
    readonly snicUtilization: number;
    readonly prefillBusy: number;
    readonly decodeBatch: number;
  };
  readonly job: { readonly agents: number; readonly jctS: number } | undefined;
  readonly bufferBytesPerNode: { readonly prefill: number; readonly decode: number };
  readonly sensitivity: readonly Sensitivity[];
  readonly buyNext: string;
}

/** Larger clusters are simulated as so many nodes of the same division: throughput grows with them, within 3 %. */
const mostSimulatedNodes = 8;
const horizonS = 2400;
const toleranceShare = 0.05;
/** About a standard deviation of the fit, relative (docs/simulator.md). */
const constantSpread = { prefillFlopsPerS: 0.03, snicEfficiency: 0.05, decodePerSequenceS: 0.12 } as const;

/** @throws INVALID_ARGUMENT for an impossible cluster or workload, CANCELLED when interrupted before there is a plan */
export async function planCluster(options: PlanOptions): Promise<Plan> {
  const { nodes } = options;
  if (!Number.isSafeInteger(nodes) || nodes < 2) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `a cluster of ${nodes} nodes has none of one role: use 2 or more`,
    );
  }
  const scale = Math.max(1, nodes / mostSimulatedNodes);
  const simulated = Math.min(nodes, mostSimulatedNodes);
  const estimates = divisions(options, simulated);
  const leaders = estimates.slice(0, 3);
  const capacities = await search(
    options,
    leaders.map((estimate) => capacityTask(options, estimate)),
  );
  let best = 0;
  for (const [index, { aps }] of capacities.entries()) if (aps > capacities[best]!.aps * 1.01) best = index;
  const chosen = leaders[best]!;
  const capacity = capacities[best]!;
  const changes = sensitivities(options, chosen);
  const changed = await search(
    options,
    changes.map(({ task }) => task),
  );
  const sensitivity = changes.map(({ change, kind }, index) => {
    const { aps } = changed[index]!;
    return { change, kind, capacityAps: aps * scale, ratio: aps / capacity.aps };
  });
  const unknowns = sensitivity.filter(({ kind }) => kind === 'unknown').map(({ capacityAps }) => capacityAps);
  const run = expectedRun(options, chosen, 0.8 * capacity.aps);
  return {
    range: ratioRange(options.hardware),
    warnings: warningsOf(deploymentOf(options, chosen)),
    isOutsideCalibration: options.hardware.isExtrapolation || options.model.name !== 'ds-v3.2-660b',
    scale,
    estimates: estimates.map((estimate) => scaled(estimate, scale)),
    best: scaled(chosen, scale),
    enginesPerNode: settingsOf(deploymentOf(options, chosen), options.workload).enginesPerNode,
    capacityAps: capacity.aps * scale,
    capacityInterval: [
      Math.min(...unknowns, capacity.aps * scale),
      Math.max(...unknowns, capacity.aps * scale),
    ],
    expected: expectedOf(options, run, 0.8 * capacity.aps, scale),
    job: jobOf(options, chosen, scale),
    bufferBytesPerNode: buffersOf(options, chosen, capacity.aps, run),
    sensitivity,
    buyNext: bestPurchase(sensitivity),
  };
}

/** Divisions of the nodes, the most promising first. */
export function divisions(options: PlanOptions, nodes: number): Estimate[] {
  const range = ratioRange(options.hardware);
  const all: Estimate[] = [];
  let refusal: unknown;
  for (let prefillNodes = 1; prefillNodes < nodes; prefillNodes++) {
    try {
      all.push(estimate(options, prefillNodes, nodes - prefillNodes, range));
    } catch (error) {
      refusal = error;
    }
  }
  if (all.length === 0) throw refusal;
  return all.sort(
    (a, b) => Number(b.isBottleneckFree) - Number(a.isBottleneckFree) || b.agentsPerS - a.agentsPerS,
  );
}

function estimate(
  options: PlanOptions,
  prefillNodes: number,
  decodeNodes: number,
  range: RatioRange,
): Estimate {
  const { workload, objectives } = options;
  const settings = settingsOf(deploymentOf(options, { prefillNodes, decodeNodes }), workload);
  const { turns, promptTokens, newTokens, outputTokens } = meansOf(workload);
  const hitBytes = Math.max(1, promptTokens - newTokens) * settings.bytesPerToken;
  const batch = Math.max(
    1,
    (objectives.tpotS - settings.decodeBaseS) /
      (settings.decodePerSequenceS + settings.decodePerContextTokenS * promptTokens),
  );
  const limits = {
    storage: ((prefillNodes + decodeNodes) * settings.snicBytesPerS) / hitBytes / turns,
    prefill:
      (prefillNodes * settings.enginesPerNode) / requestSecondsOf(settings.prefillTime, workload) / turns,
    decode: (decodeNodes * settings.enginesPerNode * batch) / (outputTokens * objectives.tpotS) / turns,
  };
  const bottleneck = (Object.keys(limits) as Bottleneck[]).reduce((least, name) =>
    limits[name] < limits[least] ? name : least,
  );
  const ratio = prefillNodes / decodeNodes;
  return {
    prefillNodes,
    decodeNodes,
    bottleneck,
    agentsPerS: limits[bottleneck],
    limits,
    isBottleneckFree: ratio >= range.lower.limit && ratio <= range.upper.limit,
  };
}

function deploymentOf(
  { hardware, model, seed }: PlanOptions,
  { prefillNodes, decodeNodes }: { readonly prefillNodes: number; readonly decodeNodes: number },
): Deployment {
  return deployment({ hardware, model, prefillNodes, decodeNodes, seed });
}

function capacityTask(options: PlanOptions, at: Estimate, changes: Partial<Deployment> = {}): AnyTask {
  return {
    kind: 'capacity',
    workload: options.workload,
    deployment: { ...deploymentOf(options, at), ...changes },
    objectives: options.objectives,
    lowAps: 0,
    highAps: 1.6 * at.agentsPerS,
    toleranceAps: toleranceShare * at.agentsPerS,
    horizonS,
    rule: 'mean',
  };
}

async function search(options: PlanOptions, tasks: readonly AnyTask[]): Promise<Capacity[]> {
  const results = (await sweepAny(tasks, options)) as (Capacity | undefined)[];
  return results.map((result) => {
    if (result !== undefined) return result;
    throw new DualPathError('CANCELLED', 'planning was interrupted before there was a plan');
  });
}

function sensitivities(
  options: PlanOptions,
  at: Estimate,
): { readonly change: string; readonly kind: 'buy' | 'unknown'; readonly task: AnyTask }[] {
  const { hardware } = options;
  const { prefillNodes, decodeNodes } = at;
  const buffer = bufferBytesOf(options);
  const buy = (change: string, changes: Partial<Deployment>) =>
    ({ change, kind: 'buy', task: capacityTask(options, at, changes) }) as const;
  const unknown = (name: keyof typeof constantSpread, sign: 1 | -1) => {
    const value = fittedConstants[name] * (1 + sign * constantSpread[name]);
    const change = `${name} ${sign > 0 ? '+' : '-'}${Math.round(100 * constantSpread[name])} %`;
    const constants = { ...fittedConstants, [name]: value };
    return { change, kind: 'unknown', task: capacityTask(options, at, { constants }) } as const;
  };
  const names = Object.keys(constantSpread) as (keyof typeof constantSpread)[];
  return [
    buy('a prefill node more', { prefillNodes: prefillNodes + 1 }),
    buy('a decode node more', { decodeNodes: decodeNodes + 1 }),
    buy('storage NICs of twice the rate', {
      hardware: { ...hardware, snicBytesPerS: 2 * hardware.snicBytesPerS },
    }),
    buy('twice the buffers', { bufferBytesPerNode: 2 * buffer }),
    ...names.flatMap((name) => [unknown(name, -1), unknown(name, 1)]),
  ];
}

/** What serves most more. */
function bestPurchase(sensitivity: readonly Sensitivity[]): string {
  const purchases = sensitivity.filter(({ kind }) => kind === 'buy').sort((a, b) => b.ratio - a.ratio);
  const [best] = purchases;
  if (best === undefined || best.ratio < 1.02) return 'nothing alone: no single change of these adds 2 %';
  return `${best.change}: ${(100 * (best.ratio - 1)).toFixed(0)} % more agents a second`;
}

function expectedRun(options: PlanOptions, at: Estimate, aps: number): RunResult | undefined {
  if (aps <= 0) return undefined;
  return runSweepTask({
    workload: options.workload,
    deployment: deploymentOf(options, at),
    arrivals: { kind: 'poisson', agentsPerS: aps, untilS: horizonS },
    stop: { maxVirtualS: horizonS, warmupS: horizonS / 3 },
  });
}

function expectedOf(
  { workload, model }: PlanOptions,
  run: RunResult | undefined,
  aps: number,
  scale: number,
): Plan['expected'] {
  const { finalTokens } = meansOf(workload);
  const agentS = run?.agentS.mean ?? 0;
  const snic = run?.snic;
  return {
    aps: aps * scale,
    ttftMeanS: run?.ttftS.mean ?? 0,
    ttftP99S: run?.ttftS.p99 ?? 0,
    tpotS: run?.tpotMeanS ?? 0,
    agentS,
    workingSetBytes: workingSetBytes(aps * scale, agentS, finalTokens, model.bytesPerToken),
    snicUtilization: Math.max(snic?.prefillUtilization ?? 0, snic?.decodeUtilization ?? 0),
    prefillBusy: run?.prefillBusy ?? 0,
    decodeBatch: run?.decodeBatch ?? 0,
  };
}

function jobOf(options: PlanOptions, at: Estimate, scale: number): Plan['job'] {
  const { agents } = options;
  if (agents === undefined) return undefined;
  const run = runSweepTask({
    workload: options.workload,
    deployment: deploymentOf(options, at),
    arrivals: { kind: 'together', agents: Math.max(1, Math.round(agents / scale)) },
    stop: { maxVirtualS: 1e7 },
  });
  return { agents, jctS: run.makespanS };
}

/**
 * Little: what is in a buffer is what comes a second times how long it stays: from assignment to the first token on the
 * prefill side, where it reads, and until it is in HBM on the decode side. Twice that, for bursts.
 */
function buffersOf(
  { workload, model }: PlanOptions,
  at: Estimate,
  aps: number,
  run: RunResult | undefined,
): Plan['bufferBytesPerNode'] {
  const { turns, promptTokens } = meansOf(workload);
  const bytesPerS = aps * turns * promptTokens * model.bytesPerToken;
  const staysS = run ? run.ttftS.mean - run.admissionWaitMeanS : 0;
  const onPrefill = (run?.snic.prefillUtilization ?? 0) * at.prefillNodes;
  const onDecode = (run?.snic.decodeUtilization ?? 0) * at.decodeNodes;
  const prefillShare = onPrefill / Math.max(1e-9, onPrefill + onDecode);
  return {
    prefill: (2 * bytesPerS * staysS * prefillShare) / at.prefillNodes,
    decode: (2 * bytesPerS * (staysS + takenConstants.decodeAdmissionS)) / at.decodeNodes,
  };
}

function bufferBytesOf({ model }: PlanOptions): number {
  return model.isSpread ? takenConstants.bufferBytesPerNode : takenConstants.denseBufferBytesPerNode;
}

function scaled(estimate: Estimate, scale: number): Estimate {
  const { storage, prefill, decode } = estimate.limits;
  return {
    ...estimate,
    prefillNodes: Math.round(estimate.prefillNodes * scale),
    decodeNodes: Math.round(estimate.decodeNodes * scale),
    agentsPerS: estimate.agentsPerS * scale,
    limits: { storage: storage * scale, prefill: prefill * scale, decode: decode * scale },
  };
}
