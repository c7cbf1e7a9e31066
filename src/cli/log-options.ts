/** `--log-level` and `--log-file` of commands that run for a while. */
import { Option, type Command } from 'commander';
import type { LogFile, LogLevel } from '../log/index.js';
import type { CliContext } from './support.js';

export interface LogFlags {
  readonly logLevel?: LogLevel;
  readonly logFile?: string;
}

/** As a list of its own, so that --help loads no logger. */
const levels: readonly LogLevel[] = ['error', 'warn', 'info', 'debug'];

export function addLogOptions(command: Command): Command {
  return command
    .addOption(
      new Option('--log-level <level>', 'log as lines of JSON: on stderr, messages among them').choices(
        levels,
      ),
    )
    .option('--log-file <file>', 'append the log to a file (with level info, unless --log-level is given)');
}

/** Undefined where nobody asks. @throws INVALID_ARGUMENT for a file that cannot be opened */
export async function openCommandLog(
  { logLevel, logFile }: LogFlags,
  context: CliContext,
  fields: object,
): Promise<LogFile | undefined> {
  if (logLevel === undefined && logFile === undefined) return undefined;
  const { openLog } = await import('../log/index.js');
  const log = openLog({
    level: logLevel ?? 'info',
    ...(logFile === undefined ? {} : { file: logFile }),
    stream: { write: (line) => context.writeLog(line) },
    fields,
  });
  context.logTo(log, logFile === undefined);
  return log;
}

/** For a process started by this one. */
export function logArguments({ logLevel, logFile }: LogFlags): string[] {
  return [
    ...(logLevel === undefined ? [] : ['--log-level', logLevel]),
    ...(logFile === undefined ? [] : ['--log-file', logFile]),
  ];
}
