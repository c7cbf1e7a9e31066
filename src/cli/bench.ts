import { Command } from 'commander';
import { formatBytes, formatCount, renderTable } from '../telemetry/index.js';
import type { PostResult, RingResult } from '../bench/index.js';
import { controlCommand } from './bench-control.js';
import { copyCommand } from './bench-copy.js';
import { lookupCommand } from './bench-lookup.js';
import { balanceCommand, tailCommand } from './bench-model.js';
import { qosCommand } from './bench-qos.js';
import { rdmaCommand } from './bench-rdma.js';
import { proxyCommand } from './bench-proxy.js';
import { routerCommand } from './bench-router.js';
import { schedulerCommand } from './bench-scheduler.js';
import { simulatorCommand } from './bench-simulator.js';
import { storageCommand } from './bench-storage.js';
import { addExamples, addOutputOptions, addReportOption, contextOf } from './support.js';

/** `dualpath bench`: what the parts of the data path cost on this machine. */
export function benchCommand(): Command {
  const bench = new Command('bench').description('measure the parts of the data path');
  addExamples(bench, 'dualpath bench ring', 'dualpath bench storage --compare fio');
  bench
    .addCommand(ringCommand())
    .addCommand(lookupCommand())
    .addCommand(storageCommand())
    .addCommand(postCommand())
    .addCommand(rdmaCommand())
    .addCommand(qosCommand())
    .addCommand(copyCommand())
    .addCommand(schedulerCommand())
    .addCommand(controlCommand())
    .addCommand(balanceCommand())
    .addCommand(tailCommand())
    .addCommand(routerCommand())
    .addCommand(simulatorCommand())
    .addCommand(proxyCommand());
  for (const command of bench.commands) addReportOption(command);
  return bench;
}

function ringCommand(): Command {
  const ring = new Command('ring').description(
    'descriptors through the ring, and what JavaScript pays for a program',
  );
  addOutputOptions(ring);
  addExamples(ring, 'dualpath bench ring --json');
  return ring.action(async (_flags: object, command: Command) => {
    const context = contextOf(command);
    const { benchRing } = await import('../bench/index.js');
    const result = await benchRing({
      signal: context.signal,
      onProgress: (step) => context.note(`measuring: ${step}`),
    });
    const { programSubmitUs, programSubmitWarmUs, ...rest } = result;
    const document = {
      ...rest,
      programSubmitUs: programSubmitUs.p50,
      programSubmitP99Us: programSubmitUs.p99,
      programSubmitWarmUs: programSubmitWarmUs.p50,
    };
    context.result(document, () => ringText(result));
  });
}

function ringText(result: RingResult): string {
  const us = (value: number): string => `${value.toFixed(1)} us`;
  const millions = (value: number): string => `${(value / 1e6).toFixed(2)} M/s`;
  const lateness = ({ p50, p90, max }: RingResult['layerLatenessUs']['free']): string =>
    `${us(p50)} / ${us(p90)} / ${us(max)}`;
  return renderTable({
    head: ['ring', ''],
    rows: [
      [`no-op descriptors, ${result.descriptorsPerProgram} a program`, millions(result.descriptorsPerS)],
      ['programs of one no-op, a promise each', millions(result.programsPerS)],
      [
        `queueing ${result.programLayers} layers x ${result.programBlocks} blocks, JavaScript p50 / p99`,
        `${us(result.programSubmitUs.p50)} / ${us(result.programSubmitUs.p99)}`,
      ],
      [
        'the same without bytes, back to back',
        `${us(result.programSubmitWarmUs.p50)} / ${us(result.programSubmitWarmUs.p99)}`,
      ],
      [
        `${result.programLayers} layers of ${result.layerStepUs} us, off by p50 / p90 / max, event loop free`,
        lateness(result.layerLatenessUs.free),
      ],
      ['the same, event loop blocked for 200 ms', lateness(result.layerLatenessUs.blocked)],
      [
        `JavaScript heap after ${formatCount(result.heapBlocks)} blocks`,
        `${formatBytes(Math.max(0, result.heapGrowthBytes))} more`,
      ],
      ['carried by', `${result.transport} transport, ${result.device}`],
    ],
  });
}

function postCommand(): Command {
  const post = new Command('post').description(
    'turning blocks into work requests and posting them, against a stub provider',
  );
  addOutputOptions(post);
  addExamples(post, 'dualpath bench post --json');
  return post.action(async (_flags: object, command: Command) => {
    const context = contextOf(command);
    const { benchPost } = await import('../bench/index.js');
    const result = await benchPost({
      signal: context.signal,
      onProgress: (step) => context.note(`measuring: ${step}`),
    });
    if (!result.results.every((row) => row.postCalls === row.chains && row.completions === row.chains)) {
      context.fail();
    }
    context.result(result, () => postText(result));
  });
}

function postText({ results, provider, targetNsPerRequest }: PostResult): string {
  const ns = (value: number): string => `${value.toFixed(1)} ns`;
  const table = renderTable({
    head: [
      'chain',
      'expand',
      'post',
      'both (min to max)',
      'complete',
      'post calls a chain',
      'completions a chain',
    ],
    rows: results.map((row) => [
      `${row.chain} requests`,
      ns(row.nsPerRequest.expand),
      ns(row.nsPerRequest.post),
      `${ns(row.nsPerRequest.total)} (${ns(row.totalSpreadNs.min)} to ${ns(row.totalSpreadNs.max)})`,
      ns(row.nsPerRequest.complete),
      String(row.postCalls / row.chains),
      String(row.completions / row.chains),
    ]),
  });
  return `${table}\nfor each work request; target at 64: at most ${targetNsPerRequest} ns\ncarried by: ${provider}`;
}
