import { Command } from 'commander';
import {
  addExamples,
  addOutputOptions,
  contextOf,
  listOf,
  nonNegativeInteger,
  positiveInteger,
  positiveNumber,
  untilAborted,
} from './support.js';

interface Flags {
  host: string;
  port: number;
  count: number;
  models: string[];
  ranks: number;
  prefillUs: number;
  tokenMs: number;
  cacheTokens: number;
  blockTokens: number;
  bytesPerToken: number;
}

/** `dualpath replica`: emulated OpenAI-compatible servers. */
export function replicaCommand(): Command {
  const command = new Command('replica')
    .description('run emulated OpenAI-compatible servers: a real prefix cache, a model of time, no model')
    .option('--host <address>', 'address', '127.0.0.1')
    .option('--port <port>', 'port of the first; 0: any', nonNegativeInteger, 8001)
    .option('--count <count>', 'servers, on ports that follow', positiveInteger, 1)
    .option('--models <list>', 'models, or adapters, to list', listOf(String), ['emulated'])
    .option('--ranks <count>', 'data-parallel ranks of each', positiveInteger, 1)
    .option('--prefill-us <us>', 'prefill time of an uncached token', positiveNumber, 160)
    .option('--token-ms <ms>', 'time between two tokens of a sequence', positiveNumber, 10)
    .option('--cache-tokens <count>', 'tokens of the prefix cache', positiveInteger, 1_000_000)
    .option('--block-tokens <count>', 'tokens of a cached block', positiveInteger, 16)
    .option('--bytes-per-token <count>', 'bytes of text that count as a token', positiveInteger, 4);
  addOutputOptions(command);
  addExamples(command, 'dualpath replica --count 3', 'dualpath replica --models base,adapter --ranks 2');
  return command.action(async (flags: Flags, command: Command) => {
    const context = contextOf(command);
    const { EmulatedReplica } = await import('../replica/index.js');
    const { count, port, prefillUs, ...rest } = flags;
    const replicas = Array.from(
      { length: count },
      (_, i) =>
        new EmulatedReplica({ ...rest, port: port === 0 ? 0 : port + i, prefillSPerToken: prefillUs / 1e6 }),
    );
    try {
      for (const replica of replicas) await replica.start();
      for (const { url } of replicas)
        context.note(`emulated replica on ${url}, models ${flags.models.join(', ')}`);
      await untilAborted(context.signal);
      const totals = replicas.map(({ url, engines }) => ({
        url,
        finished: engines.reduce((sum, { finished }) => sum + finished, 0),
        promptTokens: engines.reduce((sum, { promptTokens }) => sum + promptTokens, 0),
        cachedTokens: engines.reduce((sum, { cachedTokens }) => sum + cachedTokens, 0),
      }));
      context.result({ emulated: true, replicas: totals }, () =>
        totals
          .map(({ url, finished, promptTokens, cachedTokens }) => {
            return `${url}: ${finished} requests, ${cachedTokens} of ${promptTokens} prompt tokens cached (emulated)`;
          })
          .join('\n'),
      );
    } finally {
      for (const replica of replicas) await replica.close().catch(() => undefined);
    }
  });
}
