import { balanceBinS } from './prefill-groups.js';
import type { Arrivals, ClusterSettings, StopRules } from './settings.js';
import { Simulation, type Ending } from './simulation.js';
import { maxOverMean, type StorageLink } from './storage-link.js';
import type { SimulatedWorkload } from './workload.js';

/** Windows of the storage links' balance. */
export const balanceWindowsS = [1, 5, 10, 30] as const;

/** One run in numbers; plain data, so that a thread can send it. */
export interface RunResult {
  readonly ending: Ending;
  readonly mode: string;
  /** Virtual time of the last reply; of an open run, of its end. */
  readonly makespanS: number;
  readonly requests: number;
  readonly turnsEnded: number;
  readonly requestsPerS: number;
  readonly promptTokensPerS: number;
  /** Of admitted requests' prompts. */
  readonly hitShare: number;
  readonly agentS: Quantiles;
  readonly ttftS: Quantiles;
  readonly ttstMeanS: number;
  readonly tpotMeanS: number;
  readonly snic: {
    readonly readBytes: number;
    readonly prefillUtilization: number;
    readonly decodeUtilization: number;
    /** For each of `balanceWindowsS`. */
    readonly maxOverMean: readonly number[];
  };
  /** Of prefill engines' time, what forwards take; of decode engines, the mean batch. */
  readonly prefillBusy: number;
  readonly decodeBatch: number;
  /** Mean share of the compute NICs' rate: the busiest direction of each role. */
  readonly cnic: { readonly prefill: number; readonly decode: number };
  /** Slowest engine's attention over the mean, over the first twentieth of the run, and over all of it. */
  readonly attention: { readonly first: number; readonly all: number };
  readonly admissionWaitMeanS: number;
  /** Tokens that agents at work have, a mean over time after the warm-up, and the agents. */
  readonly contextTokensMean: number;
  readonly agentsMean: number;
  readonly writtenBytes: number;
  readonly crowdedS: number;
  readonly events: number;
  readonly cpuS: number;
}

export interface Quantiles {
  readonly count: number;
  readonly mean: number;
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
  readonly max: number;
}

export interface RunOptions {
  readonly signal?: AbortSignal;
  /** Called now and then with the share of turns that have ended (0 where their number is not known) and virtual time. */
  readonly onProgress?: (share: number, virtualS: number) => void;
}

/** Events between looks at the signal. */
const sliceEvents = 200_000;

export function simulate(
  settings: ClusterSettings,
  workload: SimulatedWorkload,
  arrivals: Arrivals,
  stop: StopRules,
  options: RunOptions = {},
): RunResult {
  const started = process.cpuUsage();
  const simulation = new Simulation(settings, workload, arrivals, stop);
  const total = turnsOf(workload, arrivals);
  while (simulation.advance(sliceEvents)) {
    options.onProgress?.(total === 0 ? 0 : simulation.recorder.turnsEnded / total, simulation.nowS);
    if (options.signal?.aborted !== true) continue;
    simulation.ending = 'interrupted';
    break;
  }
  const { user, system } = process.cpuUsage(started);
  return resultOf(simulation, settings, arrivals, (user + system) / 1e6);
}

function turnsOf({ scripts }: SimulatedWorkload, arrivals: Arrivals): number {
  if (arrivals.kind === 'poisson' || arrivals.kind === 'constant') return 0;
  const agents = arrivals.kind === 'trace' ? scripts.length : arrivals.agents;
  let turns = 0;
  for (let agent = 0; agent < agents; agent++) turns += scripts[agent % scripts.length]!.promptTokens.length;
  return turns;
}

function resultOf(
  simulation: Simulation,
  settings: ClusterSettings,
  arrivals: Arrivals,
  cpuS: number,
): RunResult {
  const { recorder, prefillLinks, decodeLinks, prefill, decode } = simulation;
  const isOpen = arrivals.kind === 'poisson' || arrivals.kind === 'constant';
  const spanS = Math.max(
    isOpen || simulation.ending !== 'complete' ? simulation.nowS : recorder.lastEndS,
    1e-9,
  );
  const measuredS = Math.max(spanS - recorder.warmupS, 1e-9);
  const prefillEngines = settings.prefillNodes * settings.enginesPerNode;
  const links = [...prefillLinks, ...decodeLinks];
  const sum = (values: readonly number[]): number => values.reduce((all, value) => all + value, 0);
  const used = (side: readonly StorageLink[]): number =>
    sum(side.map(({ totalBytes }) => totalBytes)) / (side.length * settings.snicBytesPerS * spanS);
  return {
    ending: simulation.ending,
    mode: settings.mode,
    makespanS: spanS,
    requests: recorder.requests,
    turnsEnded: recorder.turnsEnded,
    requestsPerS: recorder.turnsEnded / spanS,
    promptTokensPerS: recorder.promptTokens / spanS,
    hitShare: recorder.hitTokens / Math.max(1, recorder.admittedTokens),
    agentS: quantiles(recorder.agentS.sorted()),
    ttftS: quantiles(recorder.ttftS.sorted()),
    ttstMeanS: recorder.ttstSumS / Math.max(1, recorder.decoded),
    tpotMeanS: recorder.tpotSumS / Math.max(1, recorder.decoded),
    snic: {
      readBytes: sum(links.map(({ totalBytes }) => totalBytes)),
      prefillUtilization: used(prefillLinks),
      decodeUtilization: used(decodeLinks),
      maxOverMean: balanceWindowsS.map((windowS) =>
        maxOverMean(links, Math.floor(recorder.warmupS), Math.floor(spanS), windowS),
      ),
    },
    prefillBusy: prefill.busyS / (prefillEngines * spanS),
    decodeBatch: sum(decode.map(({ busyS }) => busyS)) / (decode.length * spanS),
    cnic: cnicUse(simulation, settings, spanS),
    attention: { first: attention(prefill, spanS / 20), all: attention(prefill, spanS) },
    admissionWaitMeanS: recorder.admissionWaitS / Math.max(1, recorder.admitted),
    contextTokensMean: recorder.tokenSeconds / measuredS,
    agentsMean: recorder.agentSeconds / measuredS,
    writtenBytes: simulation.writtenBytes,
    crowdedS: prefill.crowdedS,
    events: simulation.handled,
    cpuS,
  };
}

function attention({ slowestS, meanS }: Simulation['prefill'], untilS: number): number {
  let slowest = 0;
  let mean = 0;
  for (let bin = 0; bin * balanceBinS < untilS && bin < slowestS.length; bin++) {
    slowest += slowestS[bin]!;
    mean += meanS[bin]!;
  }
  return mean === 0 ? 1 : slowest / mean;
}

function cnicUse({ prefill }: Simulation, settings: ClusterSettings, spanS: number): RunResult['cnic'] {
  const { bytes } = prefill.links;
  const { enginesPerNode, cnicBytesPerS } = settings;
  const share = (first: number, engines: number): number => {
    let out = 0;
    let into = 0;
    for (let engine = first; engine < first + engines; engine++) {
      out += bytes[2 * engine]!;
      into += bytes[2 * engine + 1]!;
    }
    return Math.max(out, into) / (engines * cnicBytesPerS * spanS);
  };
  const prefillEngines = settings.prefillNodes * enginesPerNode;
  return {
    prefill: share(0, prefillEngines),
    decode: share(prefillEngines, settings.decodeNodes * enginesPerNode),
  };
}

function quantiles(sorted: Float64Array): Quantiles {
  const { length } = sorted;
  if (length === 0) return { count: 0, mean: 0, p50: 0, p90: 0, p99: 0, max: 0 };
  const at = (q: number): number => sorted[Math.min(length - 1, Math.floor(q * length))]!;
  const mean = sorted.reduce((sum, value) => sum + value, 0) / length;
  return { count: length, mean, p50: at(0.5), p90: at(0.9), p99: at(0.99), max: sorted[length - 1]! };
}
