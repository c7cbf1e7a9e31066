import { Command, Option } from 'commander';
import type { Address } from '../control/index.js';
import type { ServeOptions } from '../serve/index.js';
import { blockLayout, loadModel } from '../layout/index.js';
import { readPolicies, type ReadPolicy } from '../scheduler/index.js';
import {
  addControlOptions,
  addressOf,
  controlOptionsOf,
  listenAddressOf,
  type ControlFlags,
} from './control-options.js';
import { addLogOptions, openCommandLog, type LogFlags } from './log-options.js';
import { addServeWatchOptions, ServeWatch, type ServeWatchFlags } from './serve-watch.js';
import {
  addExamples,
  addInputEndsOption,
  addOutputOptions,
  contextOf,
  nonNegativeInteger,
  nonNegativeNumber,
  positiveInteger,
  positiveNumber,
  untilStopped,
} from './support.js';

interface ServeFlags extends ControlFlags, LogFlags, ServeWatchFlags {
  readonly listen: Address;
  readonly model: string;
  readonly blockSize: number;
  readonly policy: ReadPolicy;
  readonly betaTokens?: number;
  readonly hitTokenWeight: number;
  readonly maxWaiting: number;
  readonly maxTries: number;
  readonly lease: number;
  readonly grace?: number;
  readonly seed: number;
  readonly membership?: string;
  readonly advertise?: Address;
  readonly untilInputEnds?: boolean;
}

/** `dualpath serve`: the request scheduler for many hosts. */
export function serveCommand(): Command {
  const serve = new Command('serve')
    .description('run the request scheduler as a gRPC service for engines and front ends of many hosts')
    .option(
      '--listen <address>',
      'host:port; port 0: any (default: 127.0.0.1:7400; others need --token-file)',
      listenAddressOf,
      { host: '127.0.0.1', port: 7400 },
    )
    .option('--model <name>', 'preset, or a JSON file with a model', 'demo')
    .option('--block-size <tokens>', 'tokens of a block', positiveInteger, 64)
    .addOption(
      new Option('--policy <policy>', 'which side reads')
        .choices(Object.keys(readPolicies))
        .default('shorter-queue'),
    )
    .option('--beta-tokens <tokens>', 'unfinished tokens beyond which a PE gets nothing', positiveInteger)
    .option('--hit-token-weight <weight>', 'what a hit counts in tok_e of a PE, 0 to 1', nonNegativeNumber, 1)
    .option(
      '--max-waiting <requests>',
      'most that wait; then submissions are refused',
      positiveInteger,
      65_536,
    )
    .option('--max-tries <count>', 'engines that a request is given to before it fails', positiveInteger, 3)
    .option('--lease <seconds>', 'a lease ends so long after its engine was last heard', positiveNumber, 5)
    .option(
      '--grace <seconds>',
      'after the start nothing is assigned so long (default: a lease and a fifth)',
      nonNegativeNumber,
    )
    .option('--seed <number>', 'breaks ties', nonNegativeInteger, 1)
    .option('--membership <url>', 'one of several schedulers leads: etcd://HOST:PORT,HOST:PORT/NAME')
    .option(
      '--advertise <address>',
      'with --membership: where others reach this scheduler, host:port (default: --listen)',
      addressOf,
    );
  addInputEndsOption(serve);
  addServeWatchOptions(serve);
  addLogOptions(serve);
  addControlOptions(serve);
  addOutputOptions(serve);
  serve.addHelpText(
    'after',
    '\nRuns until SIGINT or SIGTERM; then prints what it did. Engines and clients connect again to the next one.',
  );
  addExamples(
    serve,
    'dualpath serve --model ds-v3.2',
    'dualpath serve --listen 0.0.0.0:7400 --advertise 10.0.0.1:7400 --token-file token --membership etcd://10.0.0.1,10.0.0.2,10.0.0.3/main',
    'dualpath serve --listen 0.0.0.0:7400 --token-file token --tls-cert cert.pem --tls-key key.pem',
  );
  return serve.action(runServe);
}

/** @throws INVALID_ARGUMENT */
async function membershipOf(
  { membership, advertise }: ServeFlags,
  note: (text: string) => void,
): Promise<Pick<ServeOptions, 'membership' | 'onLeading'>> {
  if (membership === undefined) return {};
  const [{ EtcdMembership, parseEtcdUrl }, { addressText }] = await Promise.all([
    import('../etcd/index.js'),
    import('../control/index.js'),
  ]);
  const location = parseEtcdUrl(membership);
  return {
    membership: (listening) =>
      new EtcdMembership({
        ...location,
        advertise: addressText(advertise ?? listening),
        onNotice: (error) => note(error.message),
      }),
    onLeading: (epoch) => note(epoch === undefined ? 'does not lead any more' : `leads in epoch ${epoch}`),
  };
}

async function runServe(flags: ServeFlags, command: Command): Promise<void> {
  const context = contextOf(command);
  const [{ SchedulerServer }, { addressText }] = await Promise.all([
    import('../serve/index.js'),
    import('../control/index.js'),
  ]);
  const layout = blockLayout(loadModel(flags.model), { blockTokens: flags.blockSize });
  const { policy, hitTokenWeight, betaTokens, maxWaiting, maxTries, lease: leaseS, grace, seed } = flags;
  const log = await openCommandLog(flags, context, { service: 'scheduler' });
  const membership = await membershipOf(flags, (text) => context.note(text));
  const watch = await ServeWatch.open(flags, context, log?.log);
  const server = await SchedulerServer.open({
    listen: flags.listen,
    ...controlOptionsOf(flags),
    leases: {
      model: layout.model.name,
      ...{ policy, hitTokenWeight, maxWaiting, maxTries, leaseS, seed },
      ...(betaTokens === undefined ? {} : { betaTokens }),
      ...(grace === undefined ? {} : { graceS: grace }),
      blockTokens: layout.blockTokens,
      blockBytes: layout.fullBlockBytes,
      decodeSpareBlocks: 1,
      ...watch.leases,
    },
    observers: watch.observers,
    ...membership,
    ...(watch.explain === undefined ? {} : { explain: watch.explain }),
  }).catch(async (error: unknown) => {
    await watch.close();
    throw error;
  });
  watch.watch(() => server.ledger);
  try {
    const listen = addressText(server.address);
    const how = flags.tlsCert === undefined ? 'without TLS' : 'with TLS';
    context.note(`scheduler on ${listen}, model ${layout.model.name}, ${how}`);
    if (flags.tokenFile !== undefined && flags.tlsCert === undefined) {
      context.note('the token travels in clear: give --tls-cert and --tls-key beyond a trusted network');
    }
    await untilStopped(context.signal, flags.untilInputEnds);
    const statistics = server.ledger?.statistics();
    await server.close();
    context.result({ listen, model: layout.model.name, ...statistics }, () =>
      statistics === undefined
        ? 'it never led'
        : `${statistics.submitted} requests: ${statistics.completed} completed, ${statistics.failed} failed`,
    );
  } finally {
    await watch.close();
    await server.close();
  }
}
