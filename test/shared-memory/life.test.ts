import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { lifeOf, lives } from '../../src/shared-memory/life.js';

it('tells a process that runs from one that was killed, also before anybody has asked how it ended', async () => {
  expect(lives(lifeOf(process.pid)!)).toBe(true);
  expect(lives({ pid: process.pid, started: '1' })).toBe(false); // another one had its number

  // A shell that does not ask for its child's end, which therefore stays as a zombie.
  const shell = spawn('sh', ['-c', 'sleep 60 & echo $!; exec sleep 60'], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const [line] = (await once(shell.stdout, 'data')) as [Buffer];
  const life = lifeOf(Number(line.toString()))!;
  expect(lives(life)).toBe(true);
  process.kill(life.pid, 'SIGKILL');
  while (lives(life)) await new Promise((resolve) => setTimeout(resolve, 5));
  expect(readFileSync(`/proc/${life.pid}/stat`, 'latin1')).toMatch(/\) Z /);
  shell.kill('SIGKILL');
  await once(shell, 'exit');
  expect(lifeOf(shell.pid!)).toBeUndefined();
});
