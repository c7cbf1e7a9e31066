import { hostname, tmpdir } from 'node:os';
import { Command, Option } from 'commander';
import type { Address } from '../control/index.js';
import { blockLayout, loadModel } from '../layout/index.js';
import { trafficClassNames, type TrafficClass } from '../rdma/index.js';
import type { CopyWay } from '../traffic/index.js';
import { copyOption } from './copy-options.js';
import {
  addControlOptions,
  controlOptionsOf,
  listenAddressOf,
  type ControlFlags,
} from './control-options.js';
import { wayOf } from './engine-way.js';
import { addLogOptions, openCommandLog, type LogFlags } from './log-options.js';
import { addMetricsOption, openMetrics, watchEngines, type MetricsFlags } from './metrics-options.js';
import {
  addExamples,
  addInputEndsOption,
  addOutputOptions,
  contextOf,
  nonNegativeInteger,
  positiveInteger,
  sizeBytes,
  untilStopped,
} from './support.js';

interface EngineFlags extends ControlFlags, LogFlags, MetricsFlags {
  role: 'prefill' | 'decode';
  name?: string;
  listen: Address;
  model: string;
  blockSize: number;
  store: string;
  memoryLimit: number;
  transport: 'rdma' | 'shared-memory';
  untilInputEnds?: boolean;
  device?: string;
  port?: number;
  gidIndex?: number;
  sharePort?: boolean;
  copy: CopyWay;
  copyDevice?: string;
  inferenceDscp?: number;
  kvDscp?: number;
  controlDscp?: number;
  inferenceSl?: number;
  kvSl?: number;
  controlSl?: number;
}

/** `dualpath engine`: an engine process that a replay on this or another host drives. */
export function engineCommand(): Command {
  const engine = new Command('engine')
    .description(
      'run a prefill or decode engine that a replay drives (HBM and GPU are emulated, RDMA is real)',
    )
    .addOption(
      new Option('--role <role>', 'prefill or decode').choices(['prefill', 'decode']).makeOptionMandatory(),
    )
    .option('--name <name>', 'unique among the engines (default: role, host and process)')
    .option(
      '--listen <address>',
      'where drivers and other engines reach it, host:port (default: 127.0.0.1:0, any port)',
      listenAddressOf,
      { host: '127.0.0.1', port: 0 },
    )
    .option('--model <name>', 'preset, or a JSON file with a model', 'demo')
    .option('--block-size <tokens>', 'tokens of a block', positiveInteger, 64)
    .option('--store <directory>', 'holds the stores that replays make; shared by all hosts', tmpdir())
    .option('--memory-limit <size>', 'most that a replay may ask for (default: 4GiB)', sizeBytes, 4 * 2 ** 30)
    .addOption(
      new Option(
        '--transport <kind>',
        'rdma, or shared-memory: emulation, for engines of one host without RDMA',
      )
        .choices(['rdma', 'shared-memory'])
        .default('rdma'),
    )
    .option('--device <name>', 'RDMA device (default: the first with an active port)')
    .option('--port <number>', 'its port (default: the first active one)', positiveInteger)
    .option(
      '--gid-index <index>',
      'GID (default: by rank, the next where one does not work)',
      nonNegativeInteger,
    )
    .option('--share-port', 'other engines of this host may use the same port')
    .addOption(copyOption(['auto', 'nic', 'memcpy']))
    .option('--copy-device <name>', 'the RDMA device that copies (default: with nic, --device)');
  for (const name of trafficClassNames) {
    engine
      .option(`--${name}-dscp <value>`, `DSCP of class ${name} on RoCE`, nonNegativeInteger)
      .option(`--${name}-sl <value>`, `service level of class ${name} on InfiniBand`, nonNegativeInteger);
  }
  addInputEndsOption(engine);
  addMetricsOption(engine);
  addLogOptions(engine);
  addControlOptions(engine);
  addOutputOptions(engine);
  engine.addHelpText(
    'after',
    '\nRuns until SIGINT or SIGTERM; then prints what it did. Without RDMA it exits with RDMA_UNAVAILABLE and the reason, unless told to use shared memory.',
  );
  addExamples(
    engine,
    'dualpath engine --role prefill --listen 10.0.0.1:7001 --token-file token --store /mnt/kv',
    'dualpath engine --role decode --listen 10.0.0.2:7001 --token-file token --store /mnt/kv --device mlx5_0',
  );
  return engine.action(runEngine);
}

function classesOf(flags: EngineFlags): Record<string, Partial<TrafficClass>> {
  const all = flags as unknown as Record<string, number | undefined>;
  return Object.fromEntries(
    trafficClassNames.map((name) => {
      const [dscp, serviceLevel] = [all[`${name}Dscp`], all[`${name}Sl`]];
      return [
        name,
        { ...(dscp === undefined ? {} : { dscp }), ...(serviceLevel === undefined ? {} : { serviceLevel }) },
      ];
    }),
  );
}

async function runEngine(flags: EngineFlags, command: Command): Promise<void> {
  const context = contextOf(command);
  const [{ ControlNode, addressText }, { EngineHost }] = await Promise.all([
    import('../control/index.js'),
    import('../hosts/index.js'),
  ]);
  const layout = blockLayout(loadModel(flags.model), { blockTokens: flags.blockSize });
  const { identity } = layout;
  const name = flags.name ?? `${flags.role}-${hostname()}-${process.pid}`;
  const log = await openCommandLog(flags, context, { service: 'engine', engine: name, role: flags.role });
  const note = (text: string): void => context.note(`${name}: ${text}`);
  const way = await wayOf({ ...flags, classes: classesOf(flags) }, name, identity, note);
  const metrics = await openMetrics(flags, context);
  const control = controlOptionsOf(flags);
  const node = await ControlNode.open({ name, identity, listen: flags.listen, ...control });
  const host = new EngineHost({
    role: flags.role,
    layout,
    storeFolder: flags.store,
    memoryLimitBytes: flags.memoryLimit,
    node,
    ...way.over(node),
    ...(control.token === undefined ? {} : { token: control.token }),
    note,
    ...(log === undefined ? {} : { log: log.log }),
  });
  try {
    const listens = addressText(node.address!);
    context.note(
      `${name}: ${flags.role} engine on ${listens}, model ${layout.model.name}, ${way.text}; HBM and GPU are emulated`,
    );
    if (metrics !== undefined) await watchEngines(metrics, () => host.engines);
    await untilStopped(context.signal, flags.untilInputEnds);
    await host.close();
    const document = {
      ...{ name, role: flags.role, listen: listens, model: layout.model.name, ...way.facts },
      ...{ hbm: 'emulated', gpu: 'emulated', ...host.statistics },
    };
    context.result(
      document,
      () => `${name}: ${host.statistics.runs} runs, ${host.statistics.verifiedBytes} bytes verified`,
    );
    if (host.statistics.mismatchedBytes > 0) context.fail();
  } finally {
    await host.close();
    await node.close();
    await metrics?.close();
  }
}
