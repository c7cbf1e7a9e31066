import { stat } from 'node:fs/promises';
import { Option, type Command } from 'commander';
import { loadWorkload, traceFormats, type TraceFormat, type Workload } from '../trace/index.js';
import type { CliContext } from './context.js';
import { nonNegativeInteger, positiveInteger, positiveNumber } from './options.js';

/** The values of the options that addWorkloadOptions adds. */
export interface WorkloadFlags {
  format?: TraceFormat;
  sessions?: number;
  turns?: number;
  minTurns?: number;
  maxContext?: number;
  scale?: number;
  seed?: number;
  includeDuplicates?: boolean;
}

/** The options that say which part of a trace is the workload. */
export function addWorkloadOptions(command: Command): Command {
  return command
    .addOption(
      new Option('--format <format>', 'format of the trace (default: told from its first line)').choices(
        traceFormats,
      ),
    )
    .option(
      '--sessions <count>',
      'choose so many sessions, by a hash of seed and id (default: all)',
      positiveInteger,
    )
    .option('--turns <count>', 'keep the first turns of each session (default: all)', positiveInteger)
    .option('--min-turns <count>', 'leave out sessions with fewer turns (default: 1)', positiveInteger)
    .option(
      '--max-context <tokens>',
      'end a session before its first turn with more prompt and output tokens, before scaling (default: no limit)',
      positiveInteger,
    )
    .option('--scale <factor>', 'multiply all lengths (default: 1)', positiveNumber)
    .option('--seed <number>', 'seed of the choice and of the tokens (default: 0)', nonNegativeInteger)
    .option('--include-duplicates', 'keep sessions that the trace marks as copies of others');
}

/** Loads what the options describe, with a progress bar over the bytes of the file. */
export async function loadWorkloadWithProgress(
  path: string,
  flags: WorkloadFlags,
  context: CliContext,
): Promise<Workload> {
  // A pipe has no size, and a missing file is loadWorkload's to report.
  const size = await stat(path).then(
    (entry) => entry.size,
    () => 0,
  );
  const progress = size > 0 ? context.progress('reading', size) : undefined;
  try {
    const { maxContext, ...rest } = flags;
    return await loadWorkload(path, {
      ...rest,
      maxContextTokens: maxContext,
      signal: context.signal,
      onBytes: progress?.update,
    });
  } finally {
    progress?.stop();
  }
}
