import { readFileSync } from 'node:fs';
import type { Command } from 'commander';
import { describe, expect, it } from 'vitest';
import { exitCodes } from '../../src/cli/output.js';
import { commands } from '../../src/cli/run.js';
import { agentSample } from '../trace/support.js';
import { dualpath } from './support.js';

describe('help', () => {
  it('lists every command and every exit code, and goes to stdout', async () => {
    const { code, stdout, stderr } = await dualpath(['--help']);
    expect([code, stderr]).toEqual([0, '']);
    const text = stdout.replace(/\s+/g, ' ');
    for (const { name, description } of commands) expect(text).toContain(` ${name} ${description} `);
    for (const exit of Object.values(exitCodes)) expect(text).toContain(` ${exit.code} ${exit.meaning} `);
  });

  it('ends with an example, whatever the command, and describes it as the list does', async () => {
    const paths: string[][] = [[]];
    const visit = (command: Command, path: string[]): void => {
      paths.push(path);
      for (const child of command.commands) visit(child, [...path, child.name()]);
    };
    for (const { name, description, load } of commands) {
      const command = await load();
      expect([command.name(), command.description()]).toEqual([name, description]);
      visit(command, [name]);
    }
    for (const path of paths) {
      const { code, stdout } = await dualpath([...path, '--help']);
      expect(code).toBe(0);
      expect(stdout).toMatch(/\nExamples?:\n( {2}\$ dualpath .*\n)+$/);
    }
    expect(paths).toContainEqual(['trace', 'stat']);
  });

  it('runs the examples it gives', async () => {
    const { stdout } = await dualpath(['trace', 'stat', '--help']);
    const examples = [...stdout.matchAll(/^ {2}\$ dualpath (.*)$/gm)].map((match) => match[1] ?? '');
    expect(examples.length).toBeGreaterThan(0);
    for (const example of examples)
      expect(await dualpath(example.split(' '))).toMatchObject({ code: 0, stderr: '' });
  });

  it('of a command can be asked for by name, and the version too', async () => {
    expect((await dualpath(['help', 'trace'])).stdout).toBe((await dualpath(['trace', '--help'])).stdout);
    const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string };
    expect(await dualpath(['--version'])).toEqual({ code: 0, stdout: `${version}\n`, stderr: '' });
  });
});

describe('usage errors', () => {
  it.each([
    [[], /^Usage: dualpath/],
    [['trace'], /^Usage: dualpath trace/],
    [['trac'], /unknown command 'trac'\n\(Did you mean trace\?\)/],
    [['trace', 'stat'], /missing required argument 'file'/],
    [['trace', 'stat', 'x', '--sesions', '3'], /unknown option '--sesions'\n\(Did you mean --sessions\?\)/],
    [
      ['trace', 'stat', 'x', '--format', 'csv'],
      /'csv' is invalid\. Allowed choices are claude-code, mooncake, dualpath/,
    ],
    [
      ['trace', 'stat', 'x', '--turns', 'many'],
      /'--turns <count>' argument 'many' is invalid\. Give a whole number/,
    ],
    [
      ['trace', 'stat', '/nonexistent'],
      /^error: cannot read the trace \/nonexistent: .*\(INVALID_ARGUMENT\)\n$/,
    ],
    [['trace', 'stat', agentSample, '--scale', '2000'], /scale must be above 0 and at most 1024, not 2000/],
    [
      ['trace', 'stat', 'package.json'],
      /package\.json:1: expected one JSON document on the line.*\(INVALID_TRACE\)/,
    ],
  ])('%j exits with 2 and says why', async (argv, message) => {
    const plain = await dualpath(argv);
    expect(plain).toMatchObject({ code: 2, stdout: '' });
    expect(plain.stderr).toMatch(message);
    const json = await dualpath([...argv, '--json']);
    expect(json.code).toBe(2);
    const { error } = JSON.parse(json.stdout) as {
      error: { code: string; message: string; details: object };
    };
    expect(error.code).toMatch(/^INVALID_/);
    expect(error.message).not.toBe('');
    expect(error.details).toBeTypeOf('object');
  });
});

describe('interrupting', () => {
  it('exits with 130', async () => {
    const { code, stdout } = await dualpath(['trace', 'stat', agentSample, '--json'], {
      signal: AbortSignal.abort(),
    });
    expect(code).toBe(130);
    expect(JSON.parse(stdout)).toMatchObject({ error: { code: 'CANCELLED' } });
  });
});
