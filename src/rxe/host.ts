/** One host: this machine, where its kernel has rdma_rxe. */
import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync } from 'node:fs';
import { constants } from 'node:os';
import { promisify } from 'node:util';
import { DualPathError } from '../errors/index.js';
import { commandEnvironment } from '../guest/index.js';
import {
  addressOf,
  deviceName,
  notStartedStatus,
  rxeEnvironment,
  wireMtuBytes,
  type RxeHosts,
  type RxeOptions,
} from './options.js';

const netdev = 'dualpath-rxe';
const deviceFolder = '/sys/class/infiniband';
const execute = promisify(execFile);

async function succeeds(command: string, ...args: string[]): Promise<boolean> {
  return execute(command, args, { env: commandEnvironment }).then(
    () => true,
    () => false,
  );
}

async function must(command: string, ...args: string[]): Promise<void> {
  try {
    await execute(command, args, { env: commandEnvironment });
  } catch (cause) {
    const { stderr = '', message = '' } = cause as { stderr?: string; message?: string };
    const why = stderr.trim() || message;
    throw new DualPathError('RDMA_FAILED', `${command} ${args.join(' ')}: ${why}`, {}, { cause });
  }
}

/** Soft-RoCE devices that are there; only they name the network device they lie on. */
function rxeDevices(): string[] {
  if (!existsSync(deviceFolder)) return [];
  return readdirSync(deviceFolder).filter((name) => existsSync(`${deviceFolder}/${name}/parent`));
}

/** Why the kernel of this machine cannot be used; null when it can. */
export async function hostProblem(): Promise<string | null> {
  if (rxeDevices().length > 0) return null;
  if (process.getuid?.() !== 0) return 'only root can add a soft-RoCE device';
  const loaded = existsSync('/sys/module/rdma_rxe') || (await succeeds('modprobe', 'rdma_rxe'));
  return loaded ? null : 'the kernel of this machine has no module rdma_rxe';
}

export async function startOnHost(options: RxeOptions): Promise<RxeHosts> {
  const problem = await hostProblem();
  if (problem !== null)
    throw new DualPathError('RDMA_UNAVAILABLE', `no soft-RoCE on this machine: ${problem}`);
  const [existing] = rxeDevices();
  if (existing === undefined) await addDevice();
  const child = startCommand(options, existing ?? deviceName);
  let closed = false;
  const close = async (): Promise<void> => {
    if (closed) return;
    closed = true;
    await endGroup(child);
    if (existing === undefined) await removeDevice();
  };
  return {
    carriedBy: `soft-RoCE (rdma_rxe) of this machine's kernel, device ${existing ?? deviceName}`,
    statuses: statusOf(child, options).then((status) => [status]),
    setLink: async () => {
      throw new DualPathError('INVALID_ARGUMENT', 'a single host has no wire; ask for two');
    },
    close,
  };
}

async function addDevice(): Promise<void> {
  try {
    await must('ip', 'link', 'add', netdev, 'type', 'dummy');
    await must('ip', 'address', 'add', `${addressOf(1)}/24`, 'dev', netdev);
    await must('ip', 'link', 'set', netdev, 'mtu', String(wireMtuBytes), 'up');
    await must('rdma', 'link', 'add', deviceName, 'type', 'rxe', 'netdev', netdev);
  } catch (error) {
    await removeDevice();
    throw error;
  }
}

async function removeDevice(): Promise<void> {
  await succeeds('rdma', 'link', 'delete', deviceName);
  await succeeds('ip', 'link', 'delete', netdev);
}

/** In a process group of its own, and killed should this process die. */
function startCommand(options: RxeOptions, device: string): ChildProcess {
  const command = ['--pdeathsig', 'KILL', '--', ...options.commands[0]!];
  const child = spawn('setpriv', command, {
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    env: { ...(options.env ?? process.env), ...rxeEnvironment(1, 1, device, options.out) },
  });
  child.stdout.on('data', (chunk: Buffer) => options.onStdout(1, chunk));
  child.stderr.on('data', (chunk: Buffer) => options.onStderr(1, chunk));
  return child;
}

async function statusOf(child: ChildProcess, { timeLimitMs, signal }: RxeOptions): Promise<number> {
  let timedOut = false;
  const stop = (): void => killGroup(child);
  const timer = setTimeout(() => {
    timedOut = true;
    stop();
  }, timeLimitMs);
  signal?.addEventListener('abort', stop);
  try {
    const [code, killedBy] = (await once(child, 'close')) as [number | null, NodeJS.Signals | null];
    signal?.throwIfAborted();
    if (timedOut) throw new DualPathError('DEADLINE', `the time limit of ${timeLimitMs / 1000} s is over`);
    return code ?? 128 + (killedBy === null ? 0 : constants.signals[killedBy]);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return notStartedStatus;
    throw error;
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', stop);
  }
}

function killGroup(child: ChildProcess): void {
  if (child.pid === undefined) return;
  try {
    process.kill(-child.pid, 'SIGKILL');
  } catch {
    // all of the group have ended
  }
}

async function endGroup(child: ChildProcess): Promise<void> {
  killGroup(child);
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
  await once(child, 'exit');
}
