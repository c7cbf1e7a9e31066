/** Time to first token of heavy-tailed prompts in a modelled cluster: the paper's policy against the tail policy. */
import { Admission, type AdmissionOptions, type RequestDescription } from '../scheduler/index.js';
import { Draws } from '../trace/index.js';
import { admissionOptions, tokenCounts } from './balance.js';
import { ClusterModel, type ModelRequest, type PrefillState } from './model/cluster.js';
import { blockTokens, capacities, clusterOptions, type Shape } from './model/setting.js';

export interface TailOptions extends Partial<Shape> {
  readonly loads?: readonly number[];
  /** Seconds of arrivals measured, in virtual time. */
  readonly seconds?: number;
  readonly seed?: number;
  readonly policies?: Readonly<Record<string, TailPolicy>>;
  readonly signal?: AbortSignal;
  readonly onProgress?: (step: string) => void;
}

export interface TailPolicy {
  readonly admission: Partial<AdmissionOptions>;
  /** Seconds a token of slack within an engine; 0: by the time reads are complete. */
  readonly engineSlackSPerToken: number;
}

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
  paper: { admission: tokenCounts.prompt, engineSlackSPerToken: 0 },
  'paper, best beta': { admission: { hitTokenWeight: 1, betaTokens: 300_000 }, engineSlackSPerToken: 0 },
  'computed tokens': {
    admission: { hitTokenWeight: 0, betaTokens: tailBetaTokens },
    engineSlackSPerToken: 0,
  },
  tail: {
    admission: { hitTokenWeight: 0, betaTokens: tailBetaTokens, order: 'slack', slackSPerToken },
    engineSlackSPerToken: slackSPerToken,
  },
};

/** Bounds of the size classes, in new tokens. */
const classes = [256, 1024, 4096, 16_384, 32_768] as const;

const most = classes.at(-1)!;
const least = 64;
/** Of the bounded Pareto distribution of new tokens: a hundredth of the requests has half of the work. */
const tailIndex = 1.2;
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
      const ttfts = arrivals(shape, policy, load * capacityPerS, warmupS + seconds, seed);
      return summarize(load, name, ttfts, seconds);
    }),
  );
  return { ...shape, seconds, capacityPerS, runs };
}

interface Ttft {
  readonly request: ModelRequest;
  readonly ttftS: number;
  readonly endS: number;
}

/** Requests a second of the paper's policy when the queue is never empty. */
function saturation(shape: Shape, spanS: number, seed: number): number {
  const ttfts = arrivals(shape, tailPolicies.paper!, 1000, spanS, seed);
  return ttfts.filter(({ endS }) => endS >= spanS / 2 && endS < spanS).length / (spanS / 2);
}

/** Poisson arrivals up to `untilS`; runs until all have their first token. */
function arrivals(shape: Shape, policy: TailPolicy, perS: number, untilS: number, seed: number): Ttft[] {
  const engines = capacities(shape);
  const scheduler = new Admission({
    ...admissionOptions(engines, 'shorter-queue', 'prompt', seed),
    ...policy.admission,
  });
  const slack = policy.engineSlackSPerToken;
  const dueS = ({ request, readyS }: PrefillState): number =>
    slack === 0 ? readyS : request.submittedS + slack * (request.promptTokens - request.hitTokens);
  const ttfts: Ttft[] = [];
  const model = new ClusterModel(
    { ...clusterOptions(engines), shorterFirst: (a, b) => dueS(a) - dueS(b) },
    scheduler,
    {
      prefilled: (request, ttftS) => ttfts.push({ request, ttftS, endS: model.events.nowS }),
      ended: () => undefined,
    },
  );
  const draws = new Draws(seed, 2, 0);
  let count = 0;
  const arrive = (): void => {
    model.submit(heavyTailed(draws, count++));
    const gapS = draws.exponential() / perS;
    if (model.events.nowS + gapS < untilS) model.events.after(gapS, arrive);
  };
  model.events.after(0, arrive);
  for (let endS = untilS; ; endS += 10) {
    model.events.runUntil(endS);
    if (ttfts.length === count) return ttfts;
  }
}

function heavyTailed(draws: Draws, index: number): RequestDescription {
  const u = draws.uniform();
  const ratio = (least / most) ** tailIndex;
  const newTokens = Math.floor(least / (1 - u * (1 - ratio)) ** (1 / tailIndex));
  const hitTokens = Math.floor((draws.uniform() * (65_536 - newTokens)) / blockTokens) * blockTokens;
  return { request: `r${index}`, promptTokens: hitTokens + newTokens, hitTokens, maxNewTokens: 128 };
}

function summarize(load: number, policy: string, ttfts: readonly Ttft[], seconds: number): TailRun {
  const measured = ttfts.filter(({ request }) => request.submittedS >= warmupS);
  const p = (values: readonly Ttft[], q: number): number => {
    const sorted = values.map(({ ttftS }) => ttftS).sort((a, b) => a - b);
    return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? 0;
  };
  const ended = ttfts.filter(({ endS }) => endS >= warmupS && endS < warmupS + seconds).length;
  return {
    load,
    policy,
    ttftMeanS: measured.reduce((sum, { ttftS }) => sum + ttftS, 0) / measured.length,
    ttftP50S: p(measured, 0.5),
    ttftP99S: p(measured, 0.99),
    throughputPerS: ended / seconds,
    classes: classes.map((to, i) => {
      const from = i === 0 ? 0 : classes[i - 1]!;
      const inClass = measured.filter(({ request }) => {
        const newTokens = request.promptTokens - request.hitTokens;
        return newTokens > from && newTokens <= to;
      });
      return { newTokens: `${from + 1} to ${to}`, count: inClass.length, p99S: p(inClass, 0.99) };
    }),
  };
}
