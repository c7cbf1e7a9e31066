import { Command, Option } from 'commander';
import { DualPathError } from '../errors/index.js';
import { StoreAdmin, type AdminOptions } from '../storage/index.js';
import { deletionText, gcText, storeText, verifyText } from './store-text.js';
import {
  addExamples,
  addOutputOptions,
  contextOf,
  nonNegativeInteger,
  positiveInteger,
  sizeBytes,
  type CliContext,
} from './support.js';

/** `dualpath store`: a store directory, without its model and without any salt. */
export function storeCommand(): Command {
  const store = new Command('store').description('look into a block store, check it, clean it up');
  addExamples(store, 'dualpath store stat /kv', 'dualpath store gc /kv --capacity 500GiB');
  return store
    .addCommand(statCommand())
    .addCommand(verifyCommand())
    .addCommand(gcCommand())
    .addCommand(deleteCommand());
}

function pathCommand(name: string, description: string): Command {
  return new Command(name).description(description).argument('<path>', 'the store directory');
}

function statCommand(): Command {
  const stat = pathCommand('stat', 'blocks, bytes, namespaces, ages and what uses the store');
  addOutputOptions(stat);
  addExamples(stat, 'dualpath store stat /kv', 'dualpath store stat /kv --json');
  return stat.action(async (path: string, _flags: object, command: Command) => {
    const context = contextOf(command);
    const report = await withProgress(context, 'counting', (options) => open(path).stat(options));
    context.result(report, () => storeText(report));
    interrupted(context);
  });
}

interface VerifyFlags {
  limit?: number;
  resume?: string;
  threads: number;
  quarantine?: boolean;
  delete?: boolean;
}

function verifyCommand(): Command {
  const verify = pathCommand('verify', 'read blocks and check every byte; exits with 1 when one is bad')
    .option('--limit <blocks>', 'read at most so many', positiveInteger)
    .option('--resume <place>', "go on behind the 'resume' that an earlier run printed")
    .option('--threads <count>', 'blocks read at a time', positiveInteger, 4)
    .addOption(new Option('--quarantine', 'move bad blocks to bad/ in the store').conflicts('delete'))
    .addOption(new Option('--delete', 'remove bad blocks'));
  addOutputOptions(verify);
  addExamples(verify, 'dualpath store verify /kv', 'dualpath store verify /kv --limit 100000 --quarantine');
  return verify.action(async (path: string, flags: VerifyFlags, command: Command) => {
    const context = contextOf(command);
    const { quarantine, delete: remove, limit, resume, threads } = flags;
    const action = quarantine === true ? 'quarantine' : remove === true ? 'delete' : 'report';
    const report = await withProgress(context, 'verifying', (options) =>
      open(path).verify({ ...options, ...given({ limit, resume }), threads, action }),
    );
    context.result({ path, action, ...report }, () => verifyText(path, report));
    if (report.badBlocks > 0) context.fail();
    interrupted(context);
  });
}

interface GcFlags {
  capacity?: number;
  dryRun?: boolean;
  quarantined?: boolean;
}

function gcCommand(): Command {
  const gc = pathCommand('gc', 'remove what dead processes left and, with --capacity, the oldest blocks')
    .option('--capacity <size>', 'evict until the blocks take at most this much, 0 for all of them', capacity)
    .option('--quarantined', 'remove all quarantined blocks, not only those older than a day')
    .option('--dry-run', 'say what would be removed, and remove nothing');
  addOutputOptions(gc);
  addExamples(gc, 'dualpath store gc /kv', 'dualpath store gc /kv --capacity 500GiB --dry-run');
  return gc.action(async (path: string, flags: GcFlags, command: Command) => {
    const context = contextOf(command);
    const dryRun = flags.dryRun === true;
    const report = await withProgress(context, 'collecting', (options) =>
      open(path).gc({
        ...options,
        dryRun,
        allQuarantined: flags.quarantined === true,
        ...given({ capacityBytes: flags.capacity }),
      }),
    );
    context.result({ path, dryRun, ...report }, () => gcText(path, report, dryRun));
    if (report.failed > 0 || (report.eviction?.failedBlocks ?? 0) > 0) context.fail();
    interrupted(context);
  });
}

function deleteCommand(): Command {
  const remove = pathCommand('delete', 'delete a namespace of the store with all its blocks').requiredOption(
    '--namespace <name>',
    'the namespace; the default one is deleted with the directory',
  );
  addOutputOptions(remove);
  addExamples(remove, 'dualpath store delete /kv --namespace tenant-a');
  return remove.action(async (path: string, flags: { namespace: string }, command: Command) => {
    const context = contextOf(command);
    const { namespace } = flags;
    const report = await withProgress(context, 'deleting', (options) =>
      open(path).deleteNamespace(namespace, options),
    );
    context.result({ path, namespace, ...report }, () => deletionText(path, namespace, report));
    if (report.failed > 0) context.fail();
    interrupted(context);
  });
}

const open = (path: string): StoreAdmin => StoreAdmin.open(path);

/** Without what was left out. */
function given<T extends object>(flags: T): { [K in keyof T]?: NonNullable<T[K]> } {
  const entries = Object.entries(flags).filter(([, value]) => value !== undefined);
  return Object.fromEntries(entries) as { [K in keyof T]?: NonNullable<T[K]> };
}

/** A size, or 0. */
function capacity(text: string): number {
  return /^0+$/.test(text) ? nonNegativeInteger(text) : sizeBytes(text);
}

async function withProgress<T>(
  context: CliContext,
  label: string,
  job: (options: AdminOptions) => Promise<T>,
): Promise<T> {
  const progress = context.progress(label, 1);
  try {
    return await job({
      signal: context.signal,
      onProgress: (done, total) => progress.update(done, '', Math.max(total, done)),
    });
  } finally {
    progress.stop();
  }
}

/** The result says how far it got. */
function interrupted(context: CliContext): void {
  if (context.signal.aborted) {
    throw new DualPathError('CANCELLED', 'interrupted; the result is of what was done until then');
  }
}
