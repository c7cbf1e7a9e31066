/**
 * What metrics cost: `dualpath replay` with --metrics, scraped, against without, each a process of its own, pairs in turn with the one
 * that begins alternating. Links are so fast by default that the processors set the pace, where a cost would show;
 * a store in memory (/dev/shm) leaves the disk out.
 *
 *   node bench/metrics.mjs [--pairs N] [--scrape SECONDS] [--sessions N] [--turns N] [--snic-rate RATE] [--store FOLDER] [--json]
 *
 * On a machine that others use compare tokens a second of processor time, which is printed, too.
 *
 * Exits with 1 where throughput with metrics is below 0.99 of that without by more than the interval tells apart.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { parseArgs } from 'node:util';
import { estimateRatio, ratioEstimator } from '../dist/bench/paired.js';
import { renderTable } from '../dist/telemetry/index.js';

const root = join(import.meta.dirname, '..');
const wanted = 0.99;

const { values } = parseArgs({
  options: {
    pairs: { type: 'string', default: '7' },
    scrape: { type: 'string', default: '1' },
    sessions: { type: 'string', default: '20' },
    turns: { type: 'string', default: '40' },
    'snic-rate': { type: 'string', default: '4GB/s' },
    store: { type: 'string', default: tmpdir() },
    json: { type: 'boolean', default: false },
  },
});

const command = [
  ...[join(root, 'dist/cli/main.js'), 'replay', join(root, 'examples/traces/agent-sessions-sample.jsonl')],
  ...['--mode', 'split', '--sessions', values.sessions, '--turns', values.turns, '--json'],
  ...['--snic-rate', values['snic-rate'], '--prefill-rate', '50000000', '--decode-step', '0'],
  ...['--store', values.store],
];

/** Scrapes as Prometheus does, until `stop` is aborted. */
async function scrapeUntil(stop, url) {
  const counts = { scrapes: 0, bytes: 0 };
  while (!stop.aborted) {
    const page = await fetch(url).then(
      (response) => response.text(),
      () => '',
    );
    if (page !== '') counts.scrapes++;
    counts.bytes = Math.max(counts.bytes, page.length);
    await new Promise((resolve) => setTimeout(resolve, Number(values.scrape) * 1000));
  }
  return counts;
}

/** Prompt tokens a second, and what was scraped meanwhile. */
async function replay(metrics) {
  const child = spawn(process.execPath, [...command, ...(metrics ? ['--metrics', '0'] : [])], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const ended = new AbortController();
  let scraping;
  let said = '';
  child.stderr.on('data', (chunk) => {
    said += chunk;
    const url = /metrics at (\S+)/.exec(said)?.[1];
    if (url !== undefined) scraping ??= scrapeUntil(ended.signal, url);
  });
  const [document] = await Promise.all([text(child.stdout), once(child, 'exit')]);
  ended.abort();
  if (child.exitCode !== 0) throw new Error(`the replay failed: ${said}`);
  const { prompt_tokens_per_s: tokensPerS, cpu_percent: cpuPercent } = JSON.parse(document).modes.split;
  const tokensPerCpuS = tokensPerS / ((cpuPercent / 100) * availableParallelism());
  return { tokensPerS, tokensPerCpuS, ...(await scraping) };
}

await replay(true); // what is loaded for the first time is not measured
const pairs = [];
const cpuPairs = [];
const rows = [];
for (let pair = 0; pair < Number(values.pairs); pair++) {
  const order = pair % 2 === 0 ? [true, false] : [false, true];
  const results = new Map();
  for (const metrics of order) results.set(metrics, await replay(metrics));
  const [on, off] = [results.get(true), results.get(false)];
  pairs.push([on.tokensPerS, off.tokensPerS]);
  cpuPairs.push([on.tokensPerCpuS, off.tokensPerCpuS]);
  rows.push({ on: on.tokensPerS, off: off.tokensPerS, scrapes: on.scrapes, page_bytes: on.bytes });
  process.stderr.write(`pair ${pair + 1}: ${(on.tokensPerS / off.tokensPerS).toFixed(4)}\n`);
}
const { ratio, halfWidth } = estimateRatio(pairs);
const cpu = estimateRatio(cpuPairs);
const passed = ratio + halfWidth >= wanted;
const document = {
  estimator: ratioEstimator,
  pairs: rows,
  ratio,
  half_width: halfWidth,
  wanted,
  passed,
  cpu_ratio: cpu.ratio,
  cpu_half_width: cpu.halfWidth,
};
const table = renderTable({
  head: ['pair', 'tokens/s, metrics on', 'off', 'on/off', 'scrapes'],
  rows: rows.map(({ on, off, scrapes }, index) => [
    ...[String(index + 1), Math.round(on).toLocaleString('en'), Math.round(off).toLocaleString('en')],
    ...[(on / off).toFixed(4), String(scrapes)],
  ]),
});
const verdict =
  `on/off ${ratio.toFixed(4)} +- ${halfWidth.toFixed(4)}, wanted ${wanted}; ` +
  `by processor time ${cpu.ratio.toFixed(4)} +- ${cpu.halfWidth.toFixed(4)}`;
process.stdout.write(values.json ? `${JSON.stringify(document, null, 2)}\n` : `${table}\n${verdict}\n`);
process.exitCode = passed ? 0 : 1;
