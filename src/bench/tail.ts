/** Time to first token of heavy-tailed prompts in a simulated cluster: the paper's policy against the tail policy. */
import {
  Simulation,
  type AgentScript,
  type ClusterSettings,
  type SimulatedWorkload,
} from '../simulator/index.js';
import { Draws } from '../trace/index.js';
import { baseSettings, tokenCounts, type Shape } from './balance.js';

export interface TailOptions extends Partial<Shape> {
  readonly loads?: readonly number[];
  /** Seconds of arrivals measured, in virtual time. */
  readonly seconds?: number;
  readonly seed?: number;
  readonly policies?: Readonly<Record<string, TailPolicy>>;
  readonly signal?: AbortSignal;
  readonly onProgress?: (step: string) => void;
}

export type TailPolicy = Pick<ClusterSettings, 'hitTokenWeight' | 'betaTokens' | 'slackSPerToken'>;

export interface TailRun {
  readonly load: number;
  readonly policy: string;
  readonly ttftMeanS: number;
  readonly ttftP50S: number;
  readonly ttftP99S: number;
  readonly throughputPerS: number;
  readonly classes: readonly { readonly newTokens: string; readonly count: number; readonly p99S: number }[];
}

/** Seconds a computed token: about twice what computing it takes. */
const slackSPerToken = 0.001;
/** beta for computed tokens: 1.25 s of compute. The more a PE is given at once, the less its order can be mended. */
const tailBetaTokens = 2500;

/**
 * The paper's policy with beta by its definition, and with the beta that serves this workload best; the count of
 * computed tokens by itself; and with an order by slack on top, the tail policy.
 */
export const tailPolicies: Readonly<Record<string, TailPolicy>> = {
  paper: { ...tokenCounts.prompt, slackSPerToken: 0 },
  'paper, best beta': { hitTokenWeight: 1, betaTokens: 300_000, slackSPerToken: 0 },
  'computed tokens': { hitTokenWeight: 0, betaTokens: tailBetaTokens, slackSPerToken: 0 },
  tail: { hitTokenWeight: 0, betaTokens: tailBetaTokens, slackSPerToken },
};

/** Bounds of the size classes, in new tokens. */
const classes = [256, 1024, 4096, 16_384, 32_768] as const;

const most = classes.at(-1)!;
const least = 64;
/** Of the bounded Pareto distribution of new tokens: a hundredth of the requests has half of the work. */
const tailIndex = 1.2;
const blockTokens = 64;
/** Arrivals before this are not measured. */
const warmupS = 60;

export interface TailResult extends Shape {
  readonly seconds: number;
  readonly capacityPerS: number;
  readonly runs: readonly TailRun[];
}

export function benchTail(options: TailOptions = {}): TailResult {
  const { prefillNodes = 2, decodeNodes = 4, loads = [0.7, 0.9], seconds = 600, seed = 1 } = options;
  const { policies = tailPolicies } = options;
  const shape = { prefillNodes, decodeNodes };
  const capacityPerS = saturation(shape, Math.min(seconds, 200), seed);
  const runs = loads.flatMap((load) =>
    Object.entries(policies).map(([name, policy]) => {
      options.signal?.throwIfAborted();
      options.onProgress?.(`load ${load}, ${name}`);
      const ttfts = run(shape, policy, load * capacityPerS, warmupS + seconds, seed, warmupS, 1e6);
      return summarize(load, name, ttfts, seconds);
    }),
  );
  return { ...shape, seconds, capacityPerS, runs };
}

/** Of the requests that were measured, in the order of their first tokens. */
interface Ttfts {
  readonly newTokens: Float64Array;
  readonly ttftS: Float64Array;
  readonly firstTokenS: Float64Array;
}

/** Requests a second of the paper's policy when the queue is never empty. */
function saturation(shape: Shape, spanS: number, seed: number): number {
  const { firstTokenS } = run(shape, tailPolicies.paper!, 1000, spanS, seed, 0, spanS);
  return firstTokenS.filter((atS) => atS >= spanS / 2).length / (spanS / 2);
}

/** Poisson arrivals up to `untilS`. */
function run(
  shape: Shape,
  policy: TailPolicy,
  perS: number,
  untilS: number,
  seed: number,
  fromS: number,
  maxVirtualS: number,
): Ttfts {
  const settings = { ...baseSettings(shape, seed), ...policy };
  const workload = heavyTailed(perS, untilS, seed);
  const simulation = new Simulation(settings, workload, { kind: 'trace' }, { maxVirtualS, warmupS: fromS });
  simulation.advance(Infinity);
  const { ttftNewTokens, ttftS, firstTokenS } = simulation.recorder;
  return { newTokens: ttftNewTokens.values(), ttftS: ttftS.values(), firstTokenS: firstTokenS.values() };
}

function heavyTailed(perS: number, untilS: number, seed: number): SimulatedWorkload {
  const draws = new Draws(seed, 2, 0);
  const scripts: AgentScript[] = [];
  const arrivalS: number[] = [];
  for (let atS = 0; atS < untilS; atS += draws.exponential() / perS) {
    scripts.push(request(draws));
    arrivalS.push(atS);
  }
  return { name: 'heavy tail', blockTokens, scripts, arrivalS: Float64Array.from(arrivalS) };
}

function request(draws: Draws): AgentScript {
  const u = draws.uniform();
  const ratio = (least / most) ** tailIndex;
  const newTokens = Math.floor(least / (1 - u * (1 - ratio)) ** (1 / tailIndex));
  const hitTokens = Math.floor((draws.uniform() * (65_536 - newTokens)) / blockTokens) * blockTokens;
  return {
    promptTokens: Int32Array.of(hitTokens + newTokens),
    hitTokens: Int32Array.of(hitTokens),
    outputTokens: Int32Array.of(128),
    thinkS: Float64Array.of(0),
  };
}

function summarize(load: number, policy: string, ttfts: Ttfts, seconds: number): TailRun {
  const { newTokens, ttftS, firstTokenS } = ttfts;
  const p = (values: Float64Array, q: number): number => {
    const sorted = values.slice().sort();
    return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? 0;
  };
  const ended = firstTokenS.filter((atS) => atS < warmupS + seconds).length;
  return {
    load,
    policy,
    ttftMeanS: ttftS.reduce((sum, value) => sum + value, 0) / ttftS.length,
    ttftP50S: p(ttftS, 0.5),
    ttftP99S: p(ttftS, 0.99),
    throughputPerS: ended / seconds,
    classes: classes.map((to, i) => {
      const from = i === 0 ? 0 : classes[i - 1]!;
      const inClass = ttftS.filter((_, index) => newTokens[index]! > from && newTokens[index]! <= to);
      return { newTokens: `${from + 1} to ${to}`, count: inClass.length, p99S: p(inClass, 0.99) };
    }),
  };
}
