import { PassThrough } from 'node:stream';
import { Command } from 'commander';
import { describe, expect, it } from 'vitest';
import { bindProgram } from '../../src/cli/context.js';
import { addOutputOptions, contextOf, type CliContext } from '../../src/cli/support.js';
import { textOf } from './support.js';

async function act(argv: string[], action: (context: CliContext) => void): Promise<Record<string, unknown>> {
  const program = new Command('program');
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const outcome = bindProgram(program, { stdout, stderr, signal: new AbortController().signal });
  const leaf = addOutputOptions(new Command('leaf'));
  leaf.action((_flags: object, command: Command) => action(contextOf(command)));
  program.addCommand(leaf);
  await program.parseAsync(['leaf', ...argv], { from: 'user' });
  return { ...outcome, stdout: textOf(stdout), stderr: textOf(stderr) };
}

describe('CliContext', () => {
  it('writes the result as text or as a document', async () => {
    const action = (context: CliContext): void => context.result({ readBytes: 5n }, () => 'five\n');
    expect(await act([], action)).toMatchObject({ stdout: 'five\n', stderr: '', exitCode: 0, written: true });
    expect(await act(['--json'], action)).toMatchObject({ stdout: '{\n  "read_bytes": 5\n}\n' });
  });

  it('writes one result only', async () => {
    const twice = (context: CliContext): void => {
      context.result({}, () => 'a');
      context.result({}, () => 'b');
    };
    await expect(act([], twice)).rejects.toMatchObject({ code: 'INTERNAL' });
  });

  it('writes notes to stderr unless quiet', async () => {
    const action = (context: CliContext): void => context.note('so far');
    expect(await act(['--json'], action)).toMatchObject({ stdout: '', stderr: 'so far\n' });
    expect(await act(['-q'], action)).toMatchObject({ stdout: '', stderr: '' });
  });

  it('turns a failed check into exit code 1', async () => {
    expect(await act([], (context) => context.fail())).toMatchObject({ exitCode: 1 });
  });

  it('belongs to a running program', () => {
    expect(() => contextOf(new Command('stray'))).toThrow(/not part of a running program/);
  });
});
