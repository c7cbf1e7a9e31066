import { Command, type Option } from 'commander';
import { DualPathError } from '../errors/index.js';
import { renderTable } from '../telemetry/index.js';
import { addExamples, addOutputOptions, contextOf } from './support.js';

/** An option of a command. */
export interface Knob {
  /** `bench storage`. */
  readonly command: string;
  /** `--snic-rate <rate>`. */
  readonly name: string;
  /** As help says it; null where there is none. */
  readonly default: string | null;
  readonly help: string;
}

/** Options that every command has. */
const everywhere = new Set(['--json', '--quiet', '--help']);

/** `dualpath config`: one table of all knobs, made from the commands themselves. */
export function configCommand(program: () => Promise<Command>): Command {
  const config = new Command('config')
    .description('every option of every command: default and meaning')
    .argument('[command...]', "only this command's, such as: bench storage");
  addOutputOptions(config);
  addExamples(config, 'dualpath config replay', 'dualpath config --json');
  return config.action(async (wanted: readonly string[], _flags: object, command: Command) => {
    const prefix = wanted.join(' ');
    const knobs = [...knobsOf(await program())].filter(
      ({ command: name }) => prefix === '' || name === prefix || name.startsWith(`${prefix} `),
    );
    if (knobs.length === 0) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `there is no command '${prefix}'; dualpath --help lists them`,
        {
          command: prefix,
        },
      );
    }
    contextOf(command).result({ knobs }, () => knobsText(knobs));
  });
}

export function knobsText(knobs: readonly Knob[]): string {
  return renderTable({
    head: ['command', 'option', 'default', 'meaning'],
    rows: knobs.map(({ command, name, default: value, help }) => [command, name, value ?? '', help]),
  });
}

/** Of a program and all commands below it. */
export function* knobsOf(program: Command, path: readonly string[] = []): Generator<Knob> {
  for (const option of program.options) {
    if (everywhere.has(option.long ?? '')) continue;
    yield {
      command: path.join(' '),
      name: option.flags,
      default: defaultOf(option),
      help: helpOf(option),
    };
  }
  for (const command of program.commands) yield* knobsOf(command, [...path, command.name()]);
}

const inHelp = / ?\((?:default|default is|defaults?): ([^()]*(?:\([^()]*\)[^()]*)*)\)/;

/** Where the default is worked out, help says how. */
function defaultOf({ defaultValue, defaultValueDescription, description }: Option): string | null {
  if (defaultValueDescription !== undefined) return defaultValueDescription;
  const said = inHelp.exec(description)?.[1] ?? null;
  if (defaultValue === undefined) return said;
  // As it is typed, whatever it is parsed into.
  if (Array.isArray(defaultValue)) return defaultValue.length === 0 ? said : defaultValue.join(',');
  return typeof defaultValue === 'object' ? (said ?? JSON.stringify(defaultValue)) : String(defaultValue);
}

function helpOf({ description, argChoices }: Option): string {
  const text = description.replace(inHelp, '');
  return argChoices === undefined ? text : `${text}${text === '' ? '' : '; '}one of ${argChoices.join(', ')}`;
}
