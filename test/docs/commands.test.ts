/** Every command line that the docs and help texts show is one that the commands take. */
import { existsSync, statSync } from 'node:fs';
import { PassThrough } from 'node:stream';
import type { Command } from 'commander';
import { describe, expect, it } from 'vitest';
import { wholeProgram } from '../../src/cli/run.js';
import { guides, read } from './code.js';

const root = new URL('../../', import.meta.url);

/** Lines of code blocks of a shell, a continued line as one. */
function shellLines(document: string): string[] {
  const blocks = [...document.matchAll(/^```(?:sh|console|bash)?\n([\s\S]*?)^```$/gm)].map(
    ([, block]) => block!,
  );
  return blocks.flatMap((block) => block.replaceAll('\\\n', ' ').split('\n'));
}

/** Words of each `dualpath` command within a line. */
export function dualpathCommands(line: string): string[][] {
  const commands: string[][] = [];
  let words: string[] = [];
  const finish = (): void => {
    const start = words[0] === 'npx' || words[0] === '$' ? 1 : 0;
    const program = words[0] === '$' && words[1] === 'npx' ? 2 : start;
    if (words[program] === 'dualpath') commands.push(words.slice(program + 1));
    words = [];
  };
  for (const [, quoted, double, operator, word] of line.matchAll(
    /'([^']*)'|"([^"]*)"|([|&;]+|\d?>+|#.*$)|([^\s|&;>'"]+)/g,
  )) {
    if (operator !== undefined) {
      finish();
      if (operator.startsWith('#')) break;
    } else {
      words.push(quoted ?? double ?? word!);
    }
  }
  finish();
  return commands;
}

/** The program with actions that do nothing: parsing alone says whether it takes a line. */
async function parser(): Promise<Command> {
  const silent = {
    stdout: new PassThrough(),
    stderr: new PassThrough(),
    signal: new AbortController().signal,
  };
  const program = await wholeProgram(silent);
  const disarm = (command: Command): void => {
    if (command.commands.length === 0) command.action(() => undefined);
    command.commands.forEach(disarm);
  };
  disarm(program);
  return program;
}

async function problemsOf(program: Command, lines: readonly string[]): Promise<string[]> {
  const problems: string[] = [];
  for (const words of lines.flatMap(dualpathCommands)) {
    try {
      await program.parseAsync(words, { from: 'user' });
    } catch (error) {
      problems.push(`dualpath ${words.join(' ')}: ${(error as Error).message}`);
    }
    // `dualpath rxe -- dualpath bench rdma`: the inner one, too.
    const inner = words.indexOf('--');
    if (inner >= 0) problems.push(...(await problemsOf(program, [words.slice(inner + 1).join(' ')])));
  }
  return problems;
}

describe('command lines', () => {
  it('are found within lines of a shell', () => {
    expect(dualpathCommands("$ npx dualpath a --b 'c d' > e | head # dualpath f")).toEqual([
      ['a', '--b', 'c d'],
    ]);
    expect(dualpathCommands('dualpath a && dualpath "b c" & sleep 1')).toEqual([['a'], ['b c']]);
    expect(dualpathCommands('see dualpath')).toEqual([]);
  });

  it('of the docs are taken', async () => {
    const lines = guides.flatMap((path) => shellLines(read(path)));
    expect(lines.flatMap(dualpathCommands).length).toBeGreaterThan(20);
    const program = await parser();
    expect(await problemsOf(program, lines)).toEqual([]);
    expect(await problemsOf(program, ['dualpath replay x --no-such-option'])).toHaveLength(1);
  }, 60_000);

  it('of the examples in help texts are taken', async () => {
    const texts: string[] = [];
    const collect = (command: Command): void => {
      let text = '';
      command.configureOutput({ writeOut: (part) => (text += part) });
      command.outputHelp();
      texts.push(text);
      if (command.commands.length === 0) expect(text, command.name()).toMatch(/Examples?:\n {2}\$ dualpath/);
      command.commands.forEach(collect);
    };
    collect(await parser());
    const lines = texts.flatMap((text) => text.split('\n').filter((line) => line.startsWith('  $ ')));
    expect(lines.length).toBeGreaterThan(30);
    expect(
      await problemsOf(
        await parser(),
        lines.map((line) => line.trim()),
      ),
    ).toEqual([]);
  }, 60_000);

  it('scripts that the docs run exist', () => {
    const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> };
    const shown = guides.flatMap((path) =>
      [...read(path).matchAll(/npm run (?:--silent )?([a-z][\w:-]*)/g)].map(([, name]) => name!),
    );
    expect(shown.filter((name) => !(name in scripts))).toEqual([]);
  });

  it('links between the docs lead somewhere', () => {
    const broken = guides.flatMap((path) =>
      [...read(path).matchAll(/\]\((?!https?:)([^)#\s]+)[^)]*\)/g)]
        .map(([, target]) => new URL(target!, new URL(path, root)))
        // The reference, which has them too, takes files only.
        .filter((target) => !existsSync(target) || !statSync(target).isFile())
        .map((target) => `${path}: ${target.pathname.slice(root.pathname.length)}`),
    );
    expect(broken).toEqual([]);
  });
});
