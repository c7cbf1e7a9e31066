import { Command } from 'commander';
import type { Diagnosis } from '../doctor/index.js';
import { doctorText } from './doctor-text.js';
import { descriptionOf } from './qos-description.js';
import { addExamples, addOutputOptions, contextOf } from './support.js';

interface DoctorFlags {
  readonly store?: string;
  readonly classes?: string;
  readonly strict?: boolean;
}

const help = `
Severities: error (does not work), warning (slower or less safe), note, unknown (could not be seen from here: the remedy says
how to see it). Works without root, in containers, and where the add-on is not built.

Exits with 0 without errors, with 1 where there is an error; --strict: where there is a warning or an unknown, too.`;

/** `dualpath doctor`: everything that stops or slows the data plane on this host. */
export function doctorCommand(): Command {
  const doctor = new Command('doctor')
    .description('find what stops or slows the data plane on this host, each with its remedy')
    .option(
      '--store <folder>',
      'look at the block store’s file system, too (writes and removes a small file)',
    )
    .option('--classes <file>', "JSON description of the traffic classes (default: the paper's)")
    .option('--strict', 'exit with 1 for warnings and for what could not be seen, too');
  addOutputOptions(doctor);
  doctor.addHelpText('after', help);
  addExamples(doctor, 'dualpath doctor', 'dualpath doctor --store /kv --json');
  return doctor.action(async (flags: DoctorFlags, command: Command) => {
    const context = contextOf(command);
    const { diagnose } = await import('../doctor/index.js');
    const { liveView } = await import('../host-view/index.js');
    const { store, classes } = flags;
    const description = await descriptionOf(classes === undefined ? {} : { classes });
    const diagnosis = diagnose(liveView(), { description, ...(store === undefined ? {} : { store }) });
    if (isFailure(diagnosis, flags.strict === true)) context.fail();
    context.result(diagnosis, () => doctorText(diagnosis));
  });
}

function isFailure({ counts }: Diagnosis, strict: boolean): boolean {
  return counts.error > 0 || (strict && counts.warning + counts.unknown > 0);
}
