import { Command } from 'commander';
import type { CheckRow } from '../simulator/index.js';
import { renderTable } from '../telemetry/index.js';
import { addExamples, addOutputOptions, contextOf, positiveInteger, rateBytesPerSecond } from './support.js';

interface Flags {
  readonly sessions: number;
  readonly turns: number;
  readonly snicRate: number;
}

const shapes = [
  [1, 1],
  [1, 2],
  [2, 1],
] as const;
const modes = ['basic', 'dualpath', 'split'] as const;

/** `dualpath simulate check`: the simulation against the real data path. */
export function checkCommand(): Command {
  const check = new Command('check')
    .description(
      'the same small workload through the real data path (as in replay) and through the simulation',
    )
    .option('--sessions <count>', 'sessions side by side', positiveInteger, 6)
    .option('--turns <count>', 'turns of each', positiveInteger, 6)
    .option('--snic-rate <rate>', "each node's storage NIC", rateBytesPerSecond, 6e6);
  addOutputOptions(check);
  addExamples(check, 'dualpath simulate check --json');
  return check.action(async (flags: Flags, command: Command) => {
    const context = contextOf(command);
    const { checkAgainstReplay } = await import('../simulator/index.js');
    const progress = context.progress('checking', shapes.length * modes.length);
    const rows: CheckRow[] = [];
    try {
      for (const [prefillNodes, decodeNodes] of shapes) {
        for (const mode of modes) {
          const { sessions, turns, snicRate: snicBytesPerS } = flags;
          const options = { mode, prefillNodes, decodeNodes, sessions, turns, snicBytesPerS };
          rows.push(await checkAgainstReplay(options, context.signal));
          progress.update(rows.length);
        }
      }
    } finally {
      progress.stop();
    }
    if (!rows.every(({ withinTolerance }) => withinTolerance)) context.fail();
    context.result({ rows }, () => checkText(rows));
  });
}

function checkText(rows: readonly CheckRow[]): string {
  const s = (value: number): string => `${value.toFixed(2)} s`;
  const table = renderTable({
    head: ['', 'real time', 'simulated', 'throughput', 'real TTFT p50', 'simulated', 'ratio', 'within'],
    rows: rows.map(({ name, replay, simulated, throughputRatio, ttftRatio, withinTolerance }) => [
      name,
      s(replay.elapsedS),
      s(simulated.elapsedS),
      throughputRatio.toFixed(3),
      s(replay.ttftP50S),
      s(simulated.ttftP50S),
      ttftRatio.toFixed(3),
      withinTolerance ? 'yes' : 'no',
    ]),
  });
  return `${table}\nratios are simulated over real; it holds the order of events against the real thing, not hardware`;
}
