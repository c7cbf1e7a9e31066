import { Command } from 'commander';
import type { ContenderName, ProxyBenchResult } from '../proxy-bench/index.js';
import { formatBytes, formatCount, renderTable } from '../telemetry/index.js';
import {
  addExamples,
  addOutputOptions,
  contextOf,
  listOf,
  nonNegativeInteger,
  positiveInteger,
} from './support.js';

interface Flags {
  sizes: number[];
  against: string[];
  rounds: number;
  measureMs: number;
  connections: number;
  streams: number;
  policy: string;
}

/** `dualpath bench proxy`: the router as a proxy, beside others. */
export function proxyCommand(): Command {
  const proxy = new Command('proxy')
    .description('requests a second, added latency and many streams through the router, beside other proxies')
    .option('--sizes <list>', 'sizes of bodies in bytes', listOf(positiveInteger), [2048, 65_536])
    .option('--against <list>', 'of nginx, sglang-router', listOf(String), ['nginx', 'sglang-router'])
    .option('--rounds <count>', 'rounds of each, taken in turn', positiveInteger, 3)
    .option('--measure-ms <ms>', 'time of a round', positiveInteger, 2000)
    .option('--connections <count>', 'connections of the closed loop', positiveInteger, 32)
    .option('--streams <count>', 'streams at once; 0: leave them out', nonNegativeInteger, 2000)
    .option('--policy <name>', "the router's policy", 'dualmap');
  addOutputOptions(proxy);
  addExamples(proxy, 'dualpath bench proxy --json', 'dualpath bench proxy --against nginx --streams 0');
  return proxy.action(async (flags: Flags, command: Command) => {
    const context = contextOf(command);
    const { benchProxy, defaultProxyBench } = await import('../proxy-bench/index.js');
    const result = await benchProxy({
      ...defaultProxyBench,
      sizesBytes: flags.sizes,
      contenders: ['none', 'dualpath', ...(flags.against as ContenderName[])],
      rounds: flags.rounds,
      measureMs: flags.measureMs,
      connections: flags.connections,
      streams: flags.streams,
      policy: flags.policy,
      signal: context.signal,
      onProgress: (step) => context.note(`measuring: ${step}`),
    });
    const own = [...result.throughput, ...result.streams].filter(({ proxy: name }) => name === 'dualpath');
    if (own.some((row) => ('failed' in row ? row.failed : row.altered + row.cut) > 0)) context.fail();
    context.result(result, () => proxyText(result));
  });
}

function proxyText(result: ProxyBenchResult): string {
  const ms = (value: number): string => value.toFixed(2);
  const throughput = renderTable({
    head: ['requests a second, closed loop', 'body', 'median', 'min', 'max', 'CPU us', 'failed'],
    rows: result.throughput.map(({ proxy, bodyBytes, perS, perSMin, perSMax, cpuUs, failed }) => [
      proxy,
      formatBytes(bodyBytes),
      formatCount(Math.round(perS)),
      formatCount(Math.round(perSMin)),
      formatCount(Math.round(perSMax)),
      cpuUs === null ? '' : cpuUs.toFixed(0),
      String(failed),
    ]),
  });
  const latency = renderTable({
    head: ["latency in ms at half the router's rate", 'body', 'rate', 'p50', 'p99', 'added p50', 'added p99'],
    rows: result.halfLoad.map((row) => [
      row.proxy,
      formatBytes(row.bodyBytes),
      formatCount(row.offeredPerS),
      ms(row.p50Ms),
      ms(row.p99Ms),
      ms(row.addedP50Ms),
      ms(row.addedP99Ms),
    ]),
  });
  const streams = renderTable({
    head: ['streams', 'events', 'altered', 'cut', 'delay p50 ms', 'p99', 'max', 'added p99', 'large bodies'],
    rows: result.streams.map((row) => [
      `${row.proxy}, ${row.streams}`,
      formatCount(row.events),
      String(row.altered),
      String(row.cut),
      ms(row.delayP50Ms),
      ms(row.delayP99Ms),
      ms(row.delayMaxMs),
      ms(row.addedP99Ms),
      String(row.largeBodies),
    ]),
  });
  const where =
    result.proxyCore === null
      ? 'no core of its own for the proxies'
      : `each proxy on core ${result.proxyCore}, client and upstreams on core 0`;
  const missing = result.missing.length === 0 ? '' : `\nnot on this machine: ${result.missing.join(', ')}`;
  return [throughput, latency, ...(result.streams.length > 0 ? [streams] : []), where + missing].join('\n');
}
