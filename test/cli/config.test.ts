import { PassThrough } from 'node:stream';
import { expect, it } from 'vitest';
import { knobsOf } from '../../src/cli/config.js';
import { wholeProgram } from '../../src/cli/run.js';
import { dualpath } from './support.js';

it('lists every option once, each with its meaning', async () => {
  const { code, stdout } = await dualpath(['config', '--json']);
  expect(code).toBe(0);
  const { knobs } = JSON.parse(stdout) as {
    knobs: { command: string; name: string; default: string; help: string }[];
  };
  const names = knobs.map(({ command, name }) => `${command} ${name}`);
  expect(new Set(names).size).toBe(names.length);
  expect(names.length).toBeGreaterThan(150);
  for (const knob of knobs)
    expect(knob, JSON.stringify(knob)).toMatchObject({ help: expect.stringMatching(/\S/) as string });
  const defaults = knobs.map((knob) => knob.default as string | null);
  expect(defaults.filter((value) => /[[{]/.test(value ?? ''))).toEqual([]); // nothing that cannot be typed
  expect(knobs).toContainEqual({
    command: 'replay',
    name: '--block-size <tokens>',
    default: '64',
    help: 'tokens of a block',
  });
  expect(
    knobs.find(({ command, name }) => command === 'replay' && name.startsWith('--snic-rate')),
  ).toMatchObject({
    default: '48MB/s; with --engines: not limited',
  });
});

it('lists those of one command, and names what is none', async () => {
  const { stdout } = await dualpath(['config', 'bench', 'rdma']);
  expect(stdout).toContain('--post-list');
  expect(stdout).not.toContain('--snic-rate');
  expect(await dualpath(['config', 'nonesuch'])).toMatchObject({
    code: 2,
    stderr: expect.stringMatching(/nonesuch/) as string,
  });
});

it('no option hides behind a name that another command gives another meaning without saying so', async () => {
  const io = { stdout: new PassThrough(), stderr: new PassThrough(), signal: new AbortController().signal };
  for (const { name, help } of knobsOf(await wholeProgram(io))) {
    expect(name).toMatch(/^(-\w, )?--[a-z][a-z0-9-]*( [<[].+[>\]])?$/);
    expect(help).not.toMatch(/\.$/);
  }
});
