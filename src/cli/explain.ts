import { createReadStream } from 'node:fs';
import { createInterface } from 'node:readline';
import { Command } from 'commander';
import { addressText, type Address } from '../control/index.js';
import { DualPathError } from '../errors/index.js';
import { camelCaseKeys } from '../json/index.js';
import { addControlOptions, addressOf, controlOptionsOf, type ControlFlags } from './control-options.js';
import { explainText, type ExplainedRequest } from './explain-text.js';
import { addExamples, addOutputOptions, contextOf } from './support.js';

interface ExplainFlags extends ControlFlags {
  decisions?: string;
  scheduler?: Address;
  mode?: string;
}

/** `dualpath explain`: why a request went where it went. */
export function explainCommand(): Command {
  const explain = new Command('explain')
    .description('why a request went where it went: queues, classes, candidates, read side')
    .argument('<request>', "its name; in a replay 'session#turn', of a scheduler 'client/key'")
    .option('--decisions <file>', 'what dualpath replay --decisions wrote')
    .option('--scheduler <address>', 'host:port of a running dualpath serve', addressOf)
    .option('--mode <mode>', 'of this mode of the replay only');
  addControlOptions(explain);
  addOutputOptions(explain);
  addExamples(
    explain,
    'dualpath replay trace.jsonl --mode dualpath --decisions decisions.jsonl',
    "dualpath explain 'session-3#7' --decisions decisions.jsonl",
    'dualpath explain front-0/42 --scheduler 127.0.0.1:7400',
  );
  return explain.action(runExplain);
}

async function runExplain(request: string, flags: ExplainFlags, command: Command): Promise<void> {
  const context = contextOf(command);
  const lines = await linesOf(request, flags);
  const requests = lines.map(({ document }) => document);
  context.result({ request, explanations: requests }, () =>
    lines.map(({ document, where }) => textOf(document, where)).join('\n'),
  );
}

interface Line {
  readonly document: unknown;
  readonly where: string;
}

async function linesOf(request: string, flags: ExplainFlags): Promise<Line[]> {
  const { decisions, mode, scheduler } = flags;
  if (scheduler !== undefined) return [await askScheduler(scheduler, request, flags)];
  if (decisions === undefined) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      'explain needs what was decided: give --decisions FILE, made by dualpath replay --decisions FILE, or --scheduler HOST:PORT',
    );
  }
  const { found, others } = await findIn(decisions, request, mode);
  if (found.length > 0) return found;
  const known = others.length === 0 ? 'it has no requests' : `it has ${others.join(', ')} and maybe more`;
  throw new DualPathError(
    'INVALID_ARGUMENT',
    `request '${request}'${mode === undefined ? '' : ` of mode ${mode}`} is not in '${decisions}': ${known}`,
    { request, path: decisions },
  );
}

async function askScheduler(scheduler: Address, request: string, flags: ExplainFlags): Promise<Line> {
  const { explainRequest } = await import('../scheduler-client/index.js');
  const where = addressText(scheduler);
  const text = await explainRequest(where, request, controlOptionsOf(flags));
  return { document: parse(text, where), where };
}

/** Names that a message has room for. */
const maxNamed = 6;

async function findIn(
  path: string,
  request: string,
  mode: string | undefined,
): Promise<{ readonly found: Line[]; readonly others: string[] }> {
  const found = new Map<unknown, Line>();
  const others: string[] = [];
  let number = 0;
  const input = createReadStream(path);
  const failed = new Promise<never>((_, reject) => {
    input.once('error', (cause) => {
      reject(new DualPathError('INVALID_ARGUMENT', `cannot read '${path}': ${cause.message}`, { path }));
    });
  });
  failed.catch(() => undefined);
  const read = async (): Promise<void> => {
    for await (const text of createInterface({ input, crlfDelay: Infinity })) {
      const where = `${path}:${++number}`;
      const document = parse(text, where);
      if (document.request !== request) {
        if (others.length < maxNamed && !others.includes(document.request)) others.push(document.request);
      } else if (mode === undefined || document.mode === mode) {
        found.set(document.mode, { document, where }); // a request that was tried again has ended twice
      }
    }
  };
  await Promise.race([read(), failed]);
  return { found: [...found.values()], others };
}

function parse(text: string, where: string): { readonly request: string; readonly mode?: unknown } {
  try {
    const document = JSON.parse(text) as { request?: unknown; decisions?: unknown };
    if (typeof document.request === 'string' && Array.isArray(document.decisions)) {
      return document as { request: string };
    }
  } catch {
    // said below
  }
  throw noDecisions(where);
}

function textOf(document: unknown, where: string): string {
  try {
    return explainText(camelCaseKeys(document) as ExplainedRequest);
  } catch (cause) {
    if (!(cause instanceof TypeError)) throw cause;
    throw noDecisions(where);
  }
}

function noDecisions(where: string): DualPathError {
  return new DualPathError(
    'INVALID_ARGUMENT',
    `${where} is no line of decisions: give a file that dualpath replay --decisions has written`,
    { where },
  );
}
