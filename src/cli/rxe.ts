import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { Command, InvalidArgumentError, Option } from 'commander';
import { DualPathError, isDualPathError } from '../errors/index.js';
import { rxePlaces, startRxe, type RxeOptions, type RxePlace, type RxeShare } from '../rxe/index.js';
import { addExamples, contextOf, positiveInteger, rateBytesPerSecond, sizeBytes } from './support.js';
import type { CliContext } from './support.js';

interface Flags {
  readonly hosts: number;
  readonly host1?: string;
  readonly host2?: string;
  readonly on: RxePlace;
  readonly timeLimit: number;
  readonly out?: string;
  readonly share: readonly RxeShare[];
  readonly cpus?: number;
  readonly memory?: number;
  readonly capture?: string;
  readonly cache?: string;
  readonly quiet?: boolean;
}

const statuses = { deadline: 124, terminated: 143 } as const;

const help = `
The command finds an RDMA device (rxe0), unlimited locked memory, the current folder and all files of this machine;
what it writes to files is thrown away, except in $DUALPATH_OUT and in shared folders. It is told:
  DUALPATH_RXE_HOST, DUALPATH_RXE_HOSTS            which host it is on, of how many
  DUALPATH_RXE_ADDRESS, DUALPATH_RXE_ADDRESSES     its IP address, and all, separated by commas
  DUALPATH_RXE_DEVICE                              the RDMA device
  DUALPATH_RXE_LINK                                two hosts: write "down" or "up" there for its end of the wire
  DUALPATH_OUT                                     a folder of this machine, for results
Its standard output is that of host 1; all else goes to standard error.

Exits with the command's status (of two, host 1's unless it is 0), 124 when the time limit is over.`;

/** `dualpath rxe`: a command where there is soft-RoCE, or two that can reach each other by it. */
export function rxeCommand(): Command {
  const rxe = new Command('rxe')
    .description('run a command with a soft-RoCE device: on this kernel, or in one or two guests')
    .argument('[command...]', 'the command and its arguments, after --')
    .option('--hosts <count>', '1 or 2; the command runs on each', hostCount, 1)
    .option('--host1 <command>', 'a shell command for host 1, in place of the common one')
    .option('--host2 <command>', 'a shell command for host 2')
    .addOption(new Option('--on <place>', "'host' is this kernel").choices(rxePlaces).default('auto'))
    .option('--time-limit <seconds>', 'for all of it', positiveInteger, 600)
    .option('--out <folder>', '$DUALPATH_OUT; also gets the guests’ consoles (default: thrown away)')
    .option(
      '--share <folder[:rate]>',
      'every host sees and writes it; reads of each at most at this rate, such as 8MB/s',
      share,
      [],
    )
    .option('--cpus <count>', 'of each guest (default: 2 for one, 1 each for two)', positiveInteger)
    .option('--memory <size>', 'of each guest (default: 2GiB)', sizeBytes)
    .option('--capture <file>', 'two hosts: what crosses the wire (pcap)')
    .option('--cache <folder>', 'where the kernel of guests is kept (default: in the user’s cache)')
    .option('-q, --quiet', 'no messages of its own on stderr, only errors');
  rxe.addHelpText('after', help);
  addExamples(
    rxe,
    'dualpath rxe -- ibv_devinfo',
    'dualpath rxe --hosts 2 --host1 "sleep 1; ib_write_bw -d rxe0 10.77.0.2" --host2 "ib_write_bw -d rxe0"',
  );
  return rxe.action((command: string[], flags: Flags, self: Command) =>
    action(command, flags, contextOf(self)),
  );
}

async function action(command: readonly string[], flags: Flags, context: CliContext): Promise<void> {
  const commands = commandsOf(command, flags);
  const out = flags.out === undefined ? mkdtempSync(join(tmpdir(), 'dualpath-out-')) : resolve(flags.out);
  const terminated = new AbortController();
  const terminate = (): void => terminated.abort();
  process.on('SIGTERM', terminate).on('SIGHUP', terminate);
  try {
    const signal = AbortSignal.any([context.signal, terminated.signal]);
    context.exitWith(await runHosts({ ...optionsOf(flags, context), commands, out, signal }, context));
  } catch (error) {
    if (context.signal.aborted) throw new DualPathError('CANCELLED', 'interrupted', {}, { cause: error });
    if (terminated.signal.aborted) context.exitWith(statuses.terminated);
    else if (isDualPathError(error, 'DEADLINE')) context.exitWith(statuses.deadline, error);
    else throw error;
  } finally {
    process.off('SIGTERM', terminate).off('SIGHUP', terminate);
    if (flags.out === undefined) rmSync(out, { recursive: true, force: true });
  }
}

async function runHosts(options: RxeOptions, context: CliContext): Promise<number> {
  const hosts = await startRxe(options);
  try {
    context.note(`carried by: ${hosts.carriedBy}`);
    const ended = await hosts.statuses;
    return ended.find((status) => status !== 0) ?? 0;
  } finally {
    await hosts.close();
  }
}

function optionsOf(flags: Flags, context: CliContext): Omit<RxeOptions, 'commands' | 'out'> {
  return {
    on: flags.on,
    timeLimitMs: flags.timeLimit * 1000,
    shares: flags.share,
    ...(flags.cpus === undefined ? {} : { cpus: flags.cpus }),
    ...(flags.memory === undefined ? {} : { memoryMiB: Math.ceil(flags.memory / 2 ** 20) }),
    ...(flags.capture === undefined ? {} : { capture: flags.capture }),
    ...(flags.cache === undefined ? {} : { cache: resolve(flags.cache) }),
    onStdout: (host, chunk) => context.passOn(host === 1 ? 'stdout' : 'stderr', chunk),
    onStderr: (_host, chunk) => context.passOn('stderr', chunk),
    onProgress: (step) => context.note(step),
  };
}

function commandsOf(command: readonly string[], { hosts, host1, host2 }: Flags): string[][] {
  const own = [host1, host2];
  if (host2 !== undefined && hosts === 1 && host1 === undefined) {
    throw new DualPathError('INVALID_ARGUMENT', '--host2 without a second host; add --hosts 2');
  }
  const count = host2 === undefined ? hosts : 2;
  return Array.from({ length: count }, (_, i) => {
    const line = own[i];
    if (line !== undefined) return ['/bin/bash', '-c', line];
    if (command.length > 0) return [...command];
    throw new DualPathError('INVALID_ARGUMENT', `host ${i + 1} has no command; give one after --`);
  });
}

function hostCount(text: string): number {
  if (text === '1' || text === '2') return Number(text);
  throw new InvalidArgumentError('Give 1 or 2.');
}

function share(text: string, before: readonly RxeShare[]): RxeShare[] {
  const [, path = text, rate] = /^(.+):([^:/]+\/s)$/.exec(text) ?? [];
  const limit = rate === undefined ? {} : { readBytesPerS: rateBytesPerSecond(rate) };
  return [...before, { path: resolve(path), ...limit }];
}
