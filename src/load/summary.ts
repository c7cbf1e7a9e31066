import { quantile } from '../telemetry/index.js';
import type { Sent } from './send.js';

/** In milliseconds; null where nothing was measured. */
export interface Percentiles {
  readonly mean: number;
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
}

export interface LoadSummary {
  readonly url: string;
  readonly offeredQps: number;
  /** Every planned request was sent. */
  readonly complete: boolean;
  readonly succeeded: number;
  readonly failed: number;
  readonly durationS: number;
  readonly inputTokens: number;
  readonly cachedTokens: number | null;
  readonly outputTokens: number;
  readonly requestsPerS: number;
  /** Requests a second whose TTFT was within the SLO. */
  readonly goodputPerS: number;
  readonly sloS: number;
  /** Share of all requests whose TTFT was within the SLO; a failed one was not. */
  readonly attainment: number;
  readonly outputTokensPerS: number;
  readonly totalTokensPerS: number;
  readonly ttftMs: Percentiles | null;
  /** Time per output token without the first. */
  readonly tpotMs: Percentiles | null;
  readonly itlMs: Percentiles | null;
  readonly e2elMs: Percentiles | null;
  /** The most frequent errors, ten at most. */
  readonly errors: readonly { readonly error: string; readonly count: number }[];
}

export interface SummaryInput {
  readonly url: string;
  readonly offeredQps: number;
  readonly planned: number;
  readonly sloS: number;
  readonly durationS: number;
  readonly sent: readonly Sent[];
  /** Of each request, by the plan; the server's own count is taken where it reports one. */
  readonly promptTokens: readonly number[];
}

export function summarize(input: SummaryInput): LoadSummary {
  const { sent, sloS, durationS } = input;
  const ok = sent.filter((each) => each.ok);
  const good = ok.filter(({ startMs, firstMs }) => firstMs - startMs <= 1000 * sloS).length;
  const inputTokens = sent.reduce(
    (sum, { ok: isOk, promptTokens }, i) => sum + (isOk ? promptTokens || input.promptTokens[i]! : 0),
    0,
  );
  const outputTokens = ok.reduce((sum, each) => sum + each.outputTokens, 0);
  const cached = ok.filter(({ cachedTokens }) => cachedTokens !== null);
  const several = ok.filter((each) => each.outputTokens > 1);
  return {
    url: input.url,
    offeredQps: input.offeredQps,
    complete: sent.length === input.planned,
    succeeded: ok.length,
    failed: sent.length - ok.length,
    durationS,
    inputTokens,
    cachedTokens: cached.length === 0 ? null : cached.reduce((sum, each) => sum + each.cachedTokens!, 0),
    outputTokens,
    requestsPerS: ok.length / durationS,
    goodputPerS: good / durationS,
    sloS,
    attainment: sent.length === 0 ? 0 : good / sent.length,
    outputTokensPerS: outputTokens / durationS,
    totalTokensPerS: (inputTokens + outputTokens) / durationS,
    ttftMs: percentiles(ok.map(({ startMs, firstMs }) => firstMs - startMs)),
    tpotMs: percentiles(several.map((each) => (each.endMs - each.firstMs) / (each.outputTokens - 1))),
    itlMs: percentiles(ok.flatMap(({ gapsMs }) => gapsMs)),
    e2elMs: percentiles(ok.map(({ startMs, endMs }) => endMs - startMs)),
    errors: errorsOf(sent),
  };
}

function percentiles(values: readonly number[]): Percentiles | null {
  if (values.length === 0) return null;
  const sorted = Float64Array.from(values).sort();
  return {
    mean: sorted.reduce((sum, value) => sum + value, 0) / sorted.length,
    p50: quantile(sorted, 0.5),
    p90: quantile(sorted, 0.9),
    p99: quantile(sorted, 0.99),
  };
}

function errorsOf(sent: readonly Sent[]): { error: string; count: number }[] {
  const counts = new Map<string, number>();
  for (const { ok, error, status } of sent) {
    if (ok) continue;
    const name = `${status === 0 ? '' : `${status} `}${error ?? 'cut off'}`;
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  return [...counts]
    .map(([error, count]) => ({ error, count }))
    .sort((a, b) => b.count - a.count)
    .slice(0, 10);
}

/** The closing table, line for line as vLLM's `bench serve` prints it, with the goodput's SLO. */
export function summaryText(summary: LoadSummary): string {
  const width = 50;
  const line = (name: string, value: string): string => `${name.padEnd(40)} ${value.padEnd(10)}`.trimEnd();
  const title = (text: string, fill: string): string => {
    const left = Math.floor((width - text.length) / 2);
    return `${fill.repeat(left)}${text}${fill.repeat(width - text.length - left)}`;
  };
  const number = (value: number): string => value.toFixed(2);
  const lines = [
    title(' Serving Benchmark Result ', '='),
    line('Successful requests:', String(summary.succeeded)),
    line('Failed requests:', String(summary.failed)),
    line('Request rate configured (RPS):', number(summary.offeredQps)),
    line('Benchmark duration (s):', number(summary.durationS)),
    line('Total input tokens:', String(summary.inputTokens)),
    ...(summary.cachedTokens === null
      ? []
      : [line('Cached input tokens, as reported:', String(summary.cachedTokens))]),
    line('Total generated tokens:', String(summary.outputTokens)),
    line('Request throughput (req/s):', number(summary.requestsPerS)),
    line(`Request goodput (req/s), TTFT <= ${summary.sloS} s:`, number(summary.goodputPerS)),
    line('Output token throughput (tok/s):', number(summary.outputTokensPerS)),
    line('Total Token throughput (tok/s):', number(summary.totalTokensPerS)),
  ];
  const sections: [string, string, Percentiles | null][] = [
    ['Time to First Token', 'TTFT', summary.ttftMs],
    ['Time per Output Token (excl. 1st token)', 'TPOT', summary.tpotMs],
    ['Inter-token Latency', 'ITL', summary.itlMs],
    ['End-to-end Latency', 'E2EL', summary.e2elMs],
  ];
  for (const [name, short, values] of sections) {
    if (values === null) continue;
    lines.push(
      title(name, '-'),
      line(`Mean ${short} (ms):`, number(values.mean)),
      line(`Median ${short} (ms):`, number(values.p50)),
      line(`P90 ${short} (ms):`, number(values.p90)),
      line(`P99 ${short} (ms):`, number(values.p99)),
    );
  }
  lines.push('='.repeat(width));
  for (const { error, count } of summary.errors) lines.push(`${count} failed: ${error}`);
  return lines.join('\n');
}
