import { Command } from 'commander';
import type { QosCheck } from '../qos/index.js';
import { descriptionOf, readText, type DescriptionFlags } from './qos-description.js';
import { checkText, planText } from './qos-text.js';
import { addExamples, addOutputOptions, contextOf, listOf, positiveInteger } from './support.js';

const layers = ['infiniband', 'roce', 'tc', 'environment'] as const;

/** `dualpath qos`: one description of traffic classes, and every layer's configuration. */
export function qosCommand(): Command {
  const qos = new Command('qos').description(
    'traffic classes: the configuration of every layer from one description, and back',
  );
  return addExamples(qos, 'dualpath qos plan', 'dualpath qos check --json')
    .addCommand(planCommand())
    .addCommand(checkCommand())
    .addCommand(applyCommand())
    .addCommand(removeCommand());
}

function addDescription(command: Command): Command {
  return command
    .option('--classes <file>', "JSON description of the classes (default: the paper's)")
    .option(
      '--exact',
      'a limit and a low-priority table that give the shares of the description, not the paper’s',
    );
}

interface PlanFlags extends DescriptionFlags {
  readonly dev?: string;
  readonly switchPorts?: readonly string[];
  readonly rateMbit?: number;
}

function planCommand(): Command {
  const plan = new Command('plan')
    .description('OpenSM, NICs and switches for RoCE, tc for soft-RoCE, NCCL, NVSHMEM and UCX')
    .option('--dev <netdev>', 'network device in the commands (default: eth0)')
    .option('--switch-ports <ports>', 'ports of a SONiC switch (default: Ethernet0)', listOf(String))
    .option(
      '--rate-mbit <rate>',
      'tc: makes the link this slow, so that its queue is there',
      positiveInteger,
    );
  addOutputOptions(addDescription(plan));
  plan.addHelpText(
    'after',
    `\nPrints each class's guaranteed share beside the paper's. Layers: ${layers.join(', ')}.`,
  );
  addExamples(plan, 'dualpath qos plan', 'dualpath qos plan --classes qos.json --exact --dev ens1f0 --json');
  return plan.action(async (flags: PlanFlags, command: Command) => {
    const context = contextOf(command);
    const description = await descriptionOf(flags);
    const { planQos, qosDocument } = await import('../qos/index.js');
    const { dev, switchPorts, rateMbit } = flags;
    const result = planQos(description, {
      ...(dev === undefined ? {} : { netdev: dev }),
      ...(switchPorts === undefined ? {} : { switchPorts }),
      ...(rateMbit === undefined ? {} : { rateMbit }),
    });
    context.result({ description: qosDocument(description), ...result }, () => planText(result));
  });
}

interface CheckFlags extends DescriptionFlags {
  readonly device?: string;
  readonly opensm?: string;
}

function checkCommand(): Command {
  const check = new Command('check')
    .description('compare what this host, or a subnet manager’s file, has with the description')
    .option('--device <name>', 'RDMA device (default: all)')
    .option('--opensm <file>', 'compare this opensm.conf instead');
  addOutputOptions(addDescription(check));
  check.addHelpText(
    'after',
    '\nExits with 1 where something differs. What may not be read is listed and does not change the status.',
  );
  addExamples(check, 'dualpath qos check --json', 'dualpath qos check --opensm /etc/opensm/opensm.conf');
  return check.action(async (flags: CheckFlags, command: Command) => {
    const context = contextOf(command);
    const result = await checkOf(flags);
    if (result.differences.length > 0) context.fail();
    context.result(result, () => checkText(result));
  });
}

async function checkOf(flags: CheckFlags): Promise<QosCheck> {
  const { device, opensm } = flags;
  const description = await descriptionOf(flags);
  const { checkOpenSm, checkQos, parseOpenSm } = await import('../qos/index.js');
  if (opensm !== undefined) return checkOpenSm(parseOpenSm(readText(opensm)), description, opensm);
  const { liveView } = await import('../host-view/index.js');
  const { findRdmaDevices, selectDevice } = await import('../rdma/index.js');
  if (device !== undefined) selectDevice(findRdmaDevices(), device);
  return checkQos(liveView(), description, device);
}

interface ApplyFlags extends DescriptionFlags {
  readonly dev: string;
  readonly rateMbit?: number;
}

function applyCommand(): Command {
  const apply = new Command('apply')
    .description('soft-RoCE: make a queue for each class with tc (needs root)')
    .requiredOption('--dev <netdev>', 'network device')
    .option('--rate-mbit <rate>', 'makes the link this slow, so that its queue is here', positiveInteger);
  addOutputOptions(addDescription(apply));
  apply.addHelpText(
    'after',
    '\nWhat an earlier apply made is replaced; a root queueing discipline of somebody else is refused.' +
      '\nA NIC with queues of its own is set by the commands that plan prints.',
  );
  addExamples(apply, 'dualpath qos apply --dev eth0 --rate-mbit 80');
  return apply.action(async (flags: ApplyFlags, command: Command) => {
    const context = contextOf(command);
    const description = await descriptionOf(flags);
    const { applyQueues } = await import('../qos/index.js');
    const { liveView } = await import('../host-view/index.js');
    const { dev, rateMbit } = flags;
    const options = rateMbit === undefined ? {} : { rateMbit };
    const commands = (await applyQueues(liveView(), dev, description, options)).map(
      (words) => `tc ${words.join(' ')}`,
    );
    context.result({ netdev: dev, commands }, () => commands.join('\n'));
  });
}

function removeCommand(): Command {
  const remove = new Command('remove')
    .description('take back what apply made (needs root)')
    .requiredOption('--dev <netdev>', 'network device');
  addOutputOptions(remove);
  addExamples(remove, 'dualpath qos remove --dev eth0');
  return remove.action(async ({ dev }: { dev: string }, command: Command) => {
    const context = contextOf(command);
    const { removeQueues } = await import('../qos/index.js');
    const { liveView } = await import('../host-view/index.js');
    const removed = await removeQueues(liveView(), dev);
    context.result({ netdev: dev, removed }, () =>
      removed ? `the queues of ${dev} are removed` : `${dev} had none of these queues`,
    );
  });
}
