import { PassThrough } from 'node:stream';
import { Command, CommanderError } from 'commander';
import { DualPathError } from '../errors/index.js';
import { bindProgram, addExamples, type CliIo, type Outcome } from './context.js';
import { errorDocument, errorText, exitCodeOf, exitCodes, toJson } from './output.js';
import { packageVersion } from './version.js';

export interface CommandEntry {
  readonly name: string;
  readonly description: string;
  /** Imports the command's file; only the command that is asked for is loaded. */
  readonly load: () => Promise<Command>;
}

export const commands: readonly CommandEntry[] = [
  {
    name: 'replay',
    description: 'replay agent sessions through an emulated cluster, every byte verified',
    load: async () => (await import('./replay.js')).replayCommand(),
  },
  {
    name: 'engine',
    description:
      'run a prefill or decode engine that a replay drives (HBM and GPU are emulated, RDMA is real)',
    load: async () => (await import('./engine.js')).engineCommand(),
  },
  {
    name: 'explain',
    description: 'why a request went where it went: queues, classes, candidates, read side',
    load: async () => (await import('./explain.js')).explainCommand(),
  },
  {
    name: 'serve',
    description: 'run the request scheduler as a gRPC service for engines and front ends of many hosts',
    load: async () => (await import('./serve.js')).serveCommand(),
  },
  {
    name: 'bench',
    description: 'measure the parts of the data path',
    load: async () => (await import('./bench.js')).benchCommand(),
  },
  {
    name: 'config',
    description: 'every option of every command: default and meaning',
    load: async () => (await import('./config.js')).configCommand(() => wholeProgram(silentIo)),
  },
  {
    name: 'devices',
    description: 'list RDMA devices, ports and GIDs, best GID first',
    load: async () => (await import('./devices.js')).devicesCommand(),
  },
  {
    name: 'doctor',
    description: 'find what stops or slows the data plane on this host, each with its remedy',
    load: async () => (await import('./doctor.js')).doctorCommand(),
  },
  {
    name: 'qos',
    description: 'traffic classes: the configuration of every layer from one description, and back',
    load: async () => (await import('./qos.js')).qosCommand(),
  },
  {
    name: 'rxe',
    description: 'run a command with a soft-RoCE device: on this kernel, or in one or two guests',
    load: async () => (await import('./rxe.js')).rxeCommand(),
  },
  {
    name: 'route-eval',
    description: 'compare routing policies on emulated replicas, in virtual time',
    load: async () => (await import('./route-eval.js')).routeEvalCommand(),
  },
  {
    name: 'simulate',
    description: 'clusters in virtual time, driven by the real scheduler',
    load: async () => (await import('./simulate.js')).simulateCommand(),
  },
  {
    name: 'plan',
    description: 'prefill and decode nodes for a workload: capacity, latencies, bottleneck, what to buy next',
    load: async () => (await import('./plan.js')).planCommand(),
  },
  {
    name: 'route',
    description: 'route requests to OpenAI-compatible servers by prefix and load (HTTP/1.1)',
    load: async () => (await import('./route.js')).routeCommand(),
  },
  {
    name: 'replica',
    description: 'run emulated OpenAI-compatible servers: a real prefix cache, a model of time, no model',
    load: async () => (await import('./replica.js')).replicaCommand(),
  },
  {
    name: 'load',
    description: 'replay a trace over HTTP against an OpenAI-compatible server or the router',
    load: async () => (await import('./load.js')).loadCommand(),
  },
  {
    name: 'trace',
    description: 'look into a workload trace, or generate one',
    load: async () => (await import('./trace.js')).traceCommand(),
  },
  {
    name: 'store',
    description: 'look into a block store, check it, clean it up',
    load: async () => (await import('./store.js')).storeCommand(),
  },
];

/** For looking at commands that nobody runs. */
const silentIo: CliIo = {
  stdout: new PassThrough(),
  stderr: new PassThrough(),
  signal: new AbortController().signal,
};

/**
 * Runs one command line (without the node and script arguments) and returns its exit code. Never throws: every
 * error is written to stderr and, with --json, as a document to stdout.
 */
export async function run(argv: readonly string[], io: CliIo): Promise<number> {
  const program = newProgram(io);
  const outcome = bindProgram(program, io);
  try {
    await addCommands(program, argv);
    await program.parseAsync(argv, { from: 'user' });
    return outcome.exitCode;
  } catch (error) {
    if (error instanceof CommanderError && error.exitCode === 0) return exitCodes.ok.code;
    const reported = error instanceof CommanderError ? usageError(error) : error;
    // Commander has written its own errors already.
    if (reported === error) await writeError(error, outcome, io);
    if (wantsJson(argv) && !outcome.written) io.stdout.write(toJson(errorDocument(reported)));
    return io.signal.aborted ? exitCodes.interrupted.code : exitCodeOf(reported);
  }
}

async function writeError(error: unknown, { log, logOnStderr }: Outcome, io: CliIo): Promise<void> {
  if (log !== undefined)
    log.log.error((await import('../log/index.js')).errorFields(error), 'the command failed');
  if (!logOnStderr) io.stderr.write(errorText(error));
}

function newProgram(io: CliIo): Command {
  const program = new Command('dualpath')
    .description('Moves KV-Cache between block storage and prefill and decode engines.')
    .version(packageVersion(), '-V, --version', 'print the version')
    .helpOption('-h, --help', 'print help')
    .helpCommand('help [command]', 'print help of a command')
    .exitOverride()
    .showHelpAfterError('(add --help for the options)')
    .configureOutput({
      writeOut: (text) => io.stdout.write(text),
      writeErr: (text) => io.stderr.write(text),
    });
  const rows = Object.values(exitCodes).map(({ code, meaning }) => `  ${String(code).padEnd(4)} ${meaning}`);
  program.addHelpText('after', `\nExit codes:\n${rows.join('\n')}`);
  return addExamples(program, 'dualpath trace stat examples/traces/agent-sessions-sample.jsonl');
}

/** Every command with its options, loaded; for those who look at them all. */
export async function wholeProgram(io: CliIo): Promise<Command> {
  const program = newProgram(io);
  bindProgram(program, io);
  for (const { load } of commands) inherit(program, program.addCommand(await load()).commands.at(-1));
  return program;
}

async function addCommands(program: Command, argv: readonly string[]): Promise<void> {
  const names = argv.filter((argument) => !argument.startsWith('-'));
  const wanted = names[0] === 'help' ? names[1] : names[0];
  for (const { name, description, load } of commands) {
    if (name === wanted) inherit(program, program.addCommand(await load()).commands.at(-1));
    else program.command(name).description(description);
  }
}

/** Commander passes settings on only to commands that it makes itself. */
function inherit(parent: Command, command: Command | undefined): void {
  if (command === undefined) return;
  command.copyInheritedSettings(parent);
  for (const child of command.commands) inherit(command, child);
}

function usageError(error: CommanderError): DualPathError {
  const missing = error.code === 'commander.help';
  const message = missing ? 'name a command; see --help' : error.message.replace(/^error: /, '');
  return new DualPathError('INVALID_ARGUMENT', message, {}, { cause: error });
}

/** Looked for by hand, because the error may be in the parsing of the options. */
function wantsJson(argv: readonly string[]): boolean {
  const end = argv.indexOf('--');
  return argv.slice(0, end < 0 ? argv.length : end).includes('--json');
}
