import { Command } from 'commander';
import { DualPathError } from '../errors/index.js';
import type { Diagnosis, PeerDiagnosis } from '../doctor/index.js';
import { doctorText } from './doctor-text.js';
import { descriptionOf } from './qos-description.js';
import { addExamples, addOutputOptions, contextOf, positiveInteger, type CliContext } from './support.js';

interface DoctorFlags {
  readonly store?: string;
  readonly classes?: string;
  readonly strict?: boolean;
  readonly peer?: string;
  readonly serve?: boolean;
  readonly bind: string;
  readonly controlPort?: number;
  readonly device?: string;
}

const help = `
Severities: error (does not work), warning (slower or less safe), note, unknown (could not be seen from here: the remedy says
how to see it). Works without root, in containers, and where the add-on is not built.

With --peer the other host runs 'dualpath doctor --serve --bind ADDRESS': both are looked at and compared, and a second of
writes and reads goes between them.

Exits with 0 without errors, with 1 where there is an error; --strict: where there is a warning or an unknown, too.`;

/** `dualpath doctor`: everything that stops or slows the data plane on this host, and between two. */
export function doctorCommand(): Command {
  const doctor = new Command('doctor')
    .description('find what stops or slows the data plane on this host, each with its remedy')
    .option(
      '--store <folder>',
      'look at the block store’s file system, too (writes and removes a small file)',
    )
    .option('--classes <file>', "JSON description of the traffic classes (default: the paper's)")
    .option('--strict', 'exit with 1 for warnings and for what could not be seen, too')
    .option('--peer <address>', 'compare with the host that serves there, and send something to it')
    .option('--device <name>', 'with --peer: RDMA device (default: the first that can be used)')
    .option('--serve', 'be the other side of one --peer, then end')
    .option(
      '--bind <address>',
      'with --serve: where to listen; whoever reaches it can use this device',
      '127.0.0.1',
    )
    .option('--control-port <port>', 'TCP port of --serve and --peer (default: 18600)', positiveInteger);
  addOutputOptions(doctor);
  doctor.addHelpText('after', help);
  addExamples(
    doctor,
    'dualpath doctor',
    'dualpath doctor --store /kv --json',
    'dualpath doctor --peer 10.0.0.2',
  );
  return doctor.action((flags: DoctorFlags, command: Command) => action(flags, contextOf(command)));
}

async function action(flags: DoctorFlags, context: CliContext): Promise<void> {
  const { store, classes, peer, serve, bind, controlPort, device } = flags;
  const { diagnose, diagnosePeer, diagnosisOf, serveDoctor } = await import('../doctor/index.js');
  const { liveView } = await import('../host-view/index.js');
  const description = await descriptionOf(classes === undefined ? {} : { classes });
  const options = { description, ...(store === undefined ? {} : { store }) };
  const port = controlPort === undefined ? {} : { controlPort };
  const view = liveView();
  if (serve === true) {
    if (peer !== undefined)
      throw new DualPathError('INVALID_ARGUMENT', '--serve and --peer: a side serves or looks');
    context.note(`serving at ${bind}`);
    const where = { address: bind, ...(controlPort === undefined ? {} : { port: controlPort }) };
    await serveDoctor(view, { ...options, ...where, signal: context.signal });
    return;
  }
  const alone = diagnose(view, options);
  if (peer === undefined) {
    report(alone, undefined, flags, context);
    return;
  }
  context.note(`looking at ${peer}`);
  const chosen = device === undefined ? {} : { device };
  const both = await diagnosePeer(view, { ...options, ...port, ...chosen, peer, signal: context.signal });
  report(diagnosisOf([...alone.findings, ...both.findings]), both.there, flags, context);
}

function report(
  diagnosis: Diagnosis,
  there: PeerDiagnosis['there'] | undefined,
  { strict = false }: DoctorFlags,
  context: CliContext,
): void {
  const isFailure = ({ counts }: Diagnosis): boolean =>
    counts.error > 0 || (strict && counts.warning + counts.unknown > 0);
  if (isFailure(diagnosis) || (there !== undefined && isFailure(there))) context.fail();
  context.result({ ...diagnosis, ...(there === undefined ? {} : { peer: there }) }, () =>
    there === undefined
      ? doctorText(diagnosis)
      : `${doctorText(diagnosis)}\n\n--- ${there.name} ---\n\n${doctorText(there)}`,
  );
}
