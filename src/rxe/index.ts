/** Soft-RoCE for tests and benchmarks, on any machine: hosts with an RDMA device, and a command on each. */
import { mkdirSync } from 'node:fs';
import { DualPathError } from '../errors/index.js';
import { startGuests } from './guests.js';
import { hostProblem, startOnHost } from './host.js';
import type { RxeHosts, RxeOptions } from './options.js';

export { rxePlaces, type RxeHosts, type RxeOptions, type RxePlace, type RxeShare } from './options.js';

/**
 * Starts the commands. Close what it returns, whatever happens.
 * @throws INVALID_ARGUMENT, RDMA_UNAVAILABLE where neither this machine's kernel nor QEMU will do
 */
export async function startRxe(options: RxeOptions): Promise<RxeHosts> {
  const { commands, on = 'auto', out } = options;
  if (commands.length < 1 || commands.length > 2 || commands.some((command) => command.length === 0)) {
    throw new DualPathError('INVALID_ARGUMENT', `${commands.length} commands; one for each of 1 or 2 hosts`);
  }
  mkdirSync(out, { recursive: true });
  // A kernel's soft-RoCE takes its own packets back before any wire; two hosts need two kernels.
  const alone = commands.length === 1;
  if (on === 'host' && !alone) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      'two hosts need guests: one kernel sends nothing over a wire',
    );
  }
  const onHost = on === 'host' || (on === 'auto' && alone && (await hostProblem()) === null);
  return onHost ? await startOnHost(options) : await startGuests(options);
}
