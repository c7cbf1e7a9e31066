import { SingleBar } from 'cli-progress';
import type { Command } from 'commander';
import { DualPathError } from '../errors/index.js';
import type { LogFile } from '../log/index.js';
import { documentReport, writeReport } from '../report/index.js';
import { errorText, exitCodes, toJson } from './output.js';
import { packageVersion } from './version.js';

/** What a command line runs against: the process's own streams, or a test's. */
export interface CliIo {
  readonly stdout: NodeJS.WritableStream;
  readonly stderr: NodeJS.WritableStream & { readonly isTTY?: boolean };
  /** Aborted on SIGINT. */
  readonly signal: AbortSignal;
}

/** One run of one command. */
export class CliContext {
  readonly signal: AbortSignal;
  readonly #io: CliIo;
  readonly #json: boolean;
  readonly #quiet: boolean;
  readonly #outcome: Outcome;
  readonly #report: ((document: object) => void) | undefined;

  constructor(
    io: CliIo,
    outcome: Outcome,
    options: { json: boolean; quiet: boolean; report?: ((document: object) => void) | undefined },
  ) {
    this.signal = io.signal;
    this.#io = io;
    this.#outcome = outcome;
    this.#json = options.json;
    this.#report = options.report;
    this.#quiet = options.quiet;
  }

  /** The command's result, once: the document under --json, else the text for people. */
  result(document: object, text: () => string): void {
    if (this.#outcome.written) throw new DualPathError('INTERNAL', 'a command wrote two results');
    const output = this.#json ? toJson(document) : `${text().trimEnd()}\n`;
    this.#outcome.written = true;
    this.#io.stdout.write(output);
    this.#report?.(document);
  }

  /** A message beside the result, on stderr and in the log; silent with --quiet. */
  note(message: string): void {
    if (this.#quiet) return;
    const { log, logOnStderr } = this.#outcome;
    log?.note(message);
    if (!logOnStderr) this.#io.stderr.write(`${message}\n`);
  }

  /** From now on messages are lines of this log, and errors too. */
  logTo(log: LogFile, onStderr: boolean): void {
    this.#outcome.log = log;
    this.#outcome.logOnStderr = onStderr;
  }

  /** For a log on stderr. */
  writeLog(line: string): void {
    this.#io.stderr.write(line);
  }

  /** The command will exit with 1: what it checked does not hold. The result is written all the same. */
  fail(): void {
    this.#outcome.exitCode = exitCodes.failed.code;
  }

  /** The command will exit with this status, which is another program's; an error is written as errors are. */
  exitWith(status: number, error?: unknown): void {
    this.#outcome.exitCode = status;
    if (error !== undefined) this.#io.stderr.write(errorText(error));
  }

  /** Passes on what another program wrote, as it is. */
  passOn(stream: 'stdout' | 'stderr', chunk: Buffer): void {
    if (stream === 'stdout') this.#outcome.written = true;
    this.#io[stream].write(chunk);
  }

  /** A progress bar on stderr; does nothing with --quiet or where stderr is not a terminal. Call stop() always. */
  progress(label: string, total: number): Progress {
    if (this.#quiet || this.#outcome.logOnStderr || this.#io.stderr.isTTY !== true)
      return { update: () => undefined, stop: () => undefined };
    const bar = new SingleBar({
      stream: this.#io.stderr,
      format: `${label} [{bar}] {percentage} % | {value}/{total} | {eta_formatted}{note}`,
      barCompleteChar: '=',
      barIncompleteChar: ' ',
      hideCursor: true,
      clearOnComplete: true,
      fps: 10,
      // Interrupts arrive as the abort signal; the bar is stopped by the command.
      gracefulExit: false,
    });
    bar.start(total, 0, { note: '' });
    const update: Progress['update'] = (done, note = '', newTotal = total) => {
      bar.setTotal(newTotal);
      bar.update(done, { note: note && ` | ${note}` });
    };
    return { update, stop: () => bar.stop() };
  }
}

export interface Progress {
  /** `done` of the total; the note stands behind the bar; another total where it was not known before. */
  readonly update: (done: number, note?: string, total?: number) => void;
  readonly stop: () => void;
}

/** What a run came to, for whoever started it. */
export interface Outcome {
  exitCode: number;
  written: boolean;
  log: LogFile | undefined;
  /** Then stderr has lines of JSON only. */
  logOnStderr: boolean;
}

const runs = new WeakMap<Command, { io: CliIo; outcome: Outcome }>();

/** Ties a program to its streams, for contextOf. */
export function bindProgram(program: Command, io: CliIo): Outcome {
  const outcome = { exitCode: exitCodes.ok.code, written: false, log: undefined, logOnStderr: false };
  runs.set(program, { io, outcome });
  return outcome;
}

/** The context of a command's action: pass the command commander hands to the action. */
export function contextOf(command: Command): CliContext {
  let root = command;
  while (root.parent !== null) root = root.parent;
  const run = runs.get(root);
  if (run === undefined) throw new DualPathError('INTERNAL', 'the command is not part of a running program');
  const options = command.opts<{ json?: boolean; quiet?: boolean; report?: string }>();
  const page = withDocumentReport.has(command) ? options.report : undefined;
  return new CliContext(run.io, run.outcome, {
    json: options.json === true,
    quiet: options.quiet === true,
    report: page === undefined ? undefined : (document) => writeDocument(command, page, document),
  });
}

const withDocumentReport = new WeakSet<Command>();

/** Adds --report: the command's document as a page. */
export function addReportOption(command: Command): Command {
  withDocumentReport.add(command);
  return command.option('--report <file>', 'write an HTML page with tables and plots');
}

function writeDocument(command: Command, page: string, document: object): void {
  const names: string[] = [];
  for (let part: Command | null = command; part !== null; part = part.parent) names.unshift(part.name());
  const parsed = JSON.parse(toJson(document)) as object;
  const made = `Made by dualpath ${packageVersion()} at ${new Date().toISOString()}.`;
  writeReport(documentReport(names.join(' '), [command.description(), made], parsed), { report: page });
}

/** Until the user interrupts: for commands that serve. */
export function untilAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}

/** Adds --until-input-ends, which untilStopped is given. */
export function addInputEndsOption(command: Command): Command {
  return command.option(
    '--until-input-ends',
    'stop when standard input ends, as with the process that started it',
  );
}

/** By SIGINT, or by SIGTERM as services are stopped, or when whoever holds the other end of the input is gone. */
export async function untilStopped(interrupted: AbortSignal, untilInputEnds = false): Promise<void> {
  const terminated = new AbortController();
  const onTerm = (): void => terminated.abort();
  process.on('SIGTERM', onTerm);
  if (untilInputEnds) process.stdin.once('close', onTerm).resume();
  await untilAborted(AbortSignal.any([interrupted, terminated.signal]));
  process.off('SIGTERM', onTerm);
  if (untilInputEnds) process.stdin.destroy(); // else the process waits for its end
}

/** Adds --json and --quiet, which contextOf reads. */
export function addOutputOptions(command: Command): Command {
  return command
    .option('--json', 'write one JSON document to stdout')
    .option('-q, --quiet', 'no progress and no messages on stderr, only errors');
}

/** Ends the command's help with examples, each a whole command line. */
export function addExamples(command: Command, ...examples: readonly string[]): Command {
  const lines = examples.map((example) => `  $ ${example}`).join('\n');
  return command.addHelpText('after', `\n${examples.length === 1 ? 'Example' : 'Examples'}:\n${lines}`);
}
