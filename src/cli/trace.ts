import { Command } from 'commander';
import { formatCount, formatDuration, formatPercent, renderTable } from '../telemetry/index.js';
import { traceStatistics, type Summary, type TraceStatistics, type Workload } from '../trace/index.js';
import { generateCommand } from './trace-generate.js';
import {
  addExamples,
  addOutputOptions,
  addWorkloadOptions,
  contextOf,
  loadWorkloadWithProgress,
  positiveInteger,
  type WorkloadFlags,
} from './support.js';

/** `dualpath trace`: what is in a trace, and traces like the paper's. */
export function traceCommand(): Command {
  const trace = new Command('trace').description('look into a workload trace, or generate one');
  addExamples(trace, 'dualpath trace stat examples/traces/agent-sessions-sample.jsonl');
  return trace.addCommand(statCommand()).addCommand(generateCommand());
}

function statCommand(): Command {
  const stat = new Command('stat')
    .description('sessions, lengths and hit rates of a trace')
    .argument('<file>', 'the trace, JSON lines, gzip-compressed or not')
    .option(
      '--block-size <tokens>',
      'tokens of a block in the hit rates (default: 64, for mooncake its 512)',
      positiveInteger,
    );
  addWorkloadOptions(stat);
  addOutputOptions(stat);
  addExamples(
    stat,
    'dualpath trace stat examples/traces/conversation-sample.jsonl',
    'dualpath trace stat examples/traces/agent-sessions-sample.jsonl --max-context 65536 --json',
  );
  return stat.action(runStat);
}

async function runStat(
  file: string,
  flags: WorkloadFlags & { blockSize?: number },
  command: Command,
): Promise<void> {
  const context = contextOf(command);
  const { blockSize, ...workloadFlags } = flags;
  const workload = await loadWorkloadWithProgress(file, workloadFlags, context);
  const progress = context.progress('walking sessions', workload.sessions.length);
  let statistics: TraceStatistics;
  try {
    statistics = await traceStatistics(workload, {
      blockTokens: blockSize ?? (workload.format === 'mooncake' ? 512 : 64),
      signal: context.signal,
      onSession: progress.update,
    });
  } finally {
    progress.stop();
  }
  const { path, format, clock, seed, scale, read, leftOut } = workload;
  const document = { trace: { path, format, clock, seed, scale, read, leftOut }, statistics };
  context.result(document, () => statText(workload, statistics));
}

function statText(workload: Workload, statistics: TraceStatistics): string {
  return [
    `${workload.path}: ${workload.format}, ${formatCount(statistics.sessions)} sessions, ` +
      `${formatCount(statistics.turns.total)} turns`,
    leftOutText(workload),
    lengthTable(statistics),
    hitTable(statistics),
  ].join('\n');
}

function leftOutText({ read, leftOut }: Workload): string {
  const reasons = [
    [leftOut.duplicateSessions, 'duplicate sessions'],
    [leftOut.oversizedSessions, 'sessions with a first turn beyond the context limit'],
    [leftOut.shortSessions, 'sessions with too few turns'],
    [leftOut.unselectedSessions, 'sessions not chosen'],
    [leftOut.turnsPastContext, 'turns of kept sessions beyond the context limit'],
    [leftOut.turnsPastCap, 'turns of kept sessions beyond --turns'],
  ] as const;
  const counted = reasons
    .filter(([count]) => count > 0)
    .map(([count, what]) => `${formatCount(count)} ${what}`);
  const total = `read ${formatCount(read.sessions)} sessions, ${formatCount(read.turns)} turns; left out: `;
  return total + (counted.length === 0 ? 'nothing' : counted.join(', '));
}

function lengthTable(statistics: TraceStatistics): string {
  const rows: string[][] = [];
  const add = (name: string, summary: Summary | null, format: (value: number) => string): void => {
    if (summary === null) return;
    const { mean, median, p90, total } = summary;
    rows.push([name, format(mean), format(median), format(p90), format(total)]);
  };
  add('turns a session', statistics.turns, formatCount);
  add('prompt tokens', statistics.promptTokens, formatCount);
  add('first prompt tokens', statistics.firstPromptTokens, formatCount);
  add('append tokens', statistics.appendTokens, formatCount);
  add('uncached tokens in the trace', statistics.traceUncachedTokens, formatCount);
  add('output tokens', statistics.outputTokens, formatCount);
  add('shared prefix tokens', statistics.sharedPrefixTokens, formatCount);
  add('think time', statistics.thinkS, formatDuration);
  add('session duration', statistics.sessionDurationS, formatDuration);
  const table = renderTable({ head: ['', 'mean', 'median', 'p90', 'total'], rows });
  const { traceDurationS } = statistics;
  return traceDurationS === null ? table : `${table}\ntrace duration: ${formatDuration(traceDurationS)}`;
}

function hitTable({ blockTokens, inSessionHit, infiniteCacheHit, traceHit }: TraceStatistics): string {
  const rows = [
    [`in-session, blocks of ${blockTokens} tokens`, inSessionHit],
    [`one infinite cache, blocks of ${blockTokens} tokens`, infiniteCacheHit],
    ...(traceHit === null ? [] : ([[`recorded in the trace, by ${traceHit.unit}`, traceHit]] as const)),
  ] as const;
  return renderTable({
    head: ['hit rate', 'hit', 'of', 'rate'],
    rows: rows.map(([name, { hit, total, rate }]) => [
      name,
      formatCount(hit),
      formatCount(total),
      formatPercent(rate),
    ]),
  });
}
