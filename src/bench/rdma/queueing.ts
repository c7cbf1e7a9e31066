/** A slower link with or without queueing by class: tc of the network device behind an RDMA device. */
import { execFile } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { DualPathError } from '../../errors/index.js';
import { commandEnvironment } from '../../guest/index.js';
import type { QueueingOptions } from './node.js';

/** 'none': the device as it is; 'fifo': one queue at the rate; 'classes': of two queues the first goes first. */
export const queueingKinds = ['none', 'fifo', 'classes'] as const;
export type QueueingKind = (typeof queueingKinds)[number];

const execute = promisify(execFile);

/** Deep enough for all that soft-RoCE has in flight: what is dropped would be sent again. */
const limit = ['burst', '16k', 'limit', '8m'];

/** The commands of tc, for whoever wants to set the same by hand. */
export function queueingCommands(
  kind: QueueingKind,
  netdev: string,
  { rateMbit, dscp }: QueueingOptions,
): string[][] {
  if (kind === 'none') return [];
  const tos = String(dscp << 2);
  const root = [
    'qdisc',
    'add',
    'dev',
    netdev,
    'root',
    'handle',
    '1:',
    'tbf',
    'rate',
    `${rateMbit}mbit`,
    ...limit,
  ];
  if (kind === 'fifo') return [root];
  return [
    root,
    ['qdisc', 'add', 'dev', netdev, 'parent', '1:1', 'handle', '2:', 'prio', 'bands', '3'],
    // Soft-RoCE sets the TOS byte and not the packet's priority, so a filter has to look at it.
    ['filter', 'add', 'dev', netdev, 'parent', '2:', 'protocol', 'ip', 'prio', '1', 'u32'].concat([
      'match',
      'ip',
      'tos',
      tos,
      '0xfc',
      'flowid',
      '2:1',
    ]),
  ];
}

export class Queueing {
  #netdev: string | undefined;

  /** @throws RDMA_UNAVAILABLE when the device has no network device, or tc refuses */
  async set(kind: QueueingKind, device: string, options: QueueingOptions): Promise<void> {
    await this.remove();
    const netdev = netdevOf(device);
    this.#netdev = kind === 'none' ? undefined : netdev;
    for (const command of queueingCommands(kind, netdev, options)) await tc(command);
  }

  async remove(): Promise<void> {
    if (this.#netdev === undefined) return;
    await tc(['qdisc', 'delete', 'dev', this.#netdev, 'root']);
    this.#netdev = undefined;
  }
}

async function tc(args: readonly string[]): Promise<void> {
  try {
    await execute('tc', args, { env: commandEnvironment });
  } catch (cause) {
    const { stderr = '', message = '' } = cause as { stderr?: string; message?: string };
    const why = stderr.trim() || message;
    throw new DualPathError('RDMA_UNAVAILABLE', `tc ${args.join(' ')}: ${why}; it needs root`, {}, { cause });
  }
}

/** Only soft-RoCE names the device it lies on; of others the GID's device would have to be shaped by hand. */
function netdevOf(device: string): string {
  const file = `/sys/class/infiniband/${device}/parent`;
  if (existsSync(file)) return readFileSync(file, 'utf8').trim();
  throw new DualPathError(
    'RDMA_UNAVAILABLE',
    `RDMA device '${device}' is no soft-RoCE device: its link is shaped by its own tools, such as mlnx_qos`,
    { device },
  );
}
