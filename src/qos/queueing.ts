/** Queues by class, made and taken away with tc. */
import { execFile } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { DualPathError } from '../errors/index.js';
import { commandEnvironment } from '../guest/index.js';
import type { HostView } from '../host-view/index.js';
import type { QosDescription } from './description.js';
import { readTc, removalCommand, shaper, tcCommands, type TcOptions } from './tc.js';

const execute = promisify(execFile);

/** 'none': the device as it is; 'fifo': one queue at the rate; 'classes': one for each class. */
export const queueingKinds = ['none', 'fifo', 'classes'] as const;
export type QueueingKind = (typeof queueingKinds)[number];

/**
 * Makes the queues. What is queued so far is dropped.
 * @throws INVALID_ARGUMENT where somebody else has set a root queueing discipline, RDMA_UNAVAILABLE where tc refuses
 */
export async function applyQueues(
  view: HostView,
  netdev: string,
  description: QosDescription,
  options: TcOptions,
): Promise<readonly string[][]> {
  const { reality, problem } = readTc(view, netdev);
  if (reality === null) throw refused(`tc qdisc show dev ${netdev}`, problem);
  if (reality.isOurs) await tc(removalCommand(netdev));
  else if (!defaults.includes(reality.root)) throw foreign(netdev, reality.root);
  const commands = tcCommands(description, netdev, options);
  await runAll(commands, netdev);
  return commands;
}

/** Takes back what applyQueues made; false: there was nothing of it. @throws as applyQueues */
export async function removeQueues(view: HostView, netdev: string): Promise<boolean> {
  const { reality, problem } = readTc(view, netdev);
  if (reality === null) throw refused(`tc qdisc show dev ${netdev}`, problem);
  if (reality.isOurs) await tc(removalCommand(netdev));
  else if (!defaults.includes(reality.root)) throw foreign(netdev, reality.root);
  return reality.isOurs;
}

/** What kernels give a device by themselves. */
const defaults: readonly string[] = ['none', 'noqueue', 'pfifo_fast', 'fq_codel', 'fq', 'mq', 'pfifo'];

function foreign(netdev: string, root: string): DualPathError {
  return new DualPathError(
    'INVALID_ARGUMENT',
    `${netdev} has a root queueing discipline '${root}' that this command did not make; ` +
      `remove it first (tc qdisc delete dev ${netdev} root)`,
    { netdev, qdisc: root },
  );
}

/** Of a soft-RoCE device, for benchmarks: one queue or a queue for each class, at a rate. */
export class Queueing {
  #netdev: string | undefined;

  /** @throws RDMA_UNAVAILABLE when the device has no network device, or tc refuses */
  async set(
    kind: QueueingKind,
    device: string,
    options: { description: QosDescription; rateMbit: number },
  ): Promise<void> {
    await this.remove();
    if (kind === 'none') return;
    const netdev = netdevOf(device);
    const { description, rateMbit } = options;
    this.#netdev = netdev;
    await runAll(
      kind === 'fifo' ? [shaper(netdev, rateMbit)] : tcCommands(description, netdev, { rateMbit }),
      netdev,
    );
  }

  async remove(): Promise<void> {
    if (this.#netdev === undefined) return;
    await tc(removalCommand(this.#netdev));
    this.#netdev = undefined;
  }
}

/** All or nothing: what has been made is taken back where one fails. */
async function runAll(commands: readonly string[][], netdev: string): Promise<void> {
  let done = 0;
  try {
    for (const command of commands) {
      await tc(command);
      done++;
    }
  } catch (error) {
    if (done > 0) await tc(removalCommand(netdev)).catch(() => undefined);
    throw error;
  }
}

async function tc(args: readonly string[]): Promise<void> {
  try {
    await execute('tc', args, { env: commandEnvironment });
  } catch (cause) {
    const { stderr = '', message = '' } = cause as { stderr?: string; message?: string };
    throw refused(`tc ${args.join(' ')}`, stderr.trim() || message, cause);
  }
}

function refused(command: string, why: string, cause?: unknown): DualPathError {
  return new DualPathError('RDMA_UNAVAILABLE', `${command}: ${why}; it needs root`, {}, { cause });
}

/** Only soft-RoCE names the device it lies on; of others the GID's device would have to be shaped by hand. */
function netdevOf(device: string): string {
  const file = `/sys/class/infiniband/${device}/parent`;
  if (existsSync(file)) return readFileSync(file, 'utf8').trim();
  throw new DualPathError(
    'RDMA_UNAVAILABLE',
    `RDMA device '${device}' is no soft-RoCE device: its link is shaped by its own tools ('dualpath qos plan')`,
    { device },
  );
}
