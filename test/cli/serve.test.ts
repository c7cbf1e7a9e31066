import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { expect, it } from 'vitest';
import { run } from '../../src/cli/run.js';
import { dualpath } from './support.js';

it('shows itself on a page until it is interrupted', async () => {
  const controller = new AbortController();
  const stdout = new PassThrough();
  const stderr = new PassThrough();
  let said = '';
  const page = new Promise<string>((resolve) => {
    stderr.on('data', (chunk: Buffer) => {
      said += chunk.toString();
      const url = /page at (\S+)/.exec(said)?.[1];
      if (url !== undefined) resolve(url);
    });
  });
  const argv = ['serve', '--listen', '127.0.0.1:0', '--web', '127.0.0.1:0', '--grace', '0', '--json'];
  const ended = run(argv, { stdout, stderr, signal: controller.signal });
  const url = await page;
  const state = (await (await fetch(new URL('/state', url))).json()) as object;
  expect(state).toMatchObject({
    epoch: expect.any(Number) as number,
    engines: [],
    statistics: { waiting: 0 },
  });
  controller.abort();
  expect(await ended).toBe(0);
  stdout.end();
  expect(JSON.parse(await text(stdout))).toMatchObject({ submitted: 0, completed: 0, model: 'demo' });
  await expect(fetch(url)).rejects.toThrow();
});

it('refuses to show itself to other hosts', async () => {
  const { code, stderr } = await dualpath(['serve', '--listen', '127.0.0.1:0', '--web', '0.0.0.0:0']);
  expect(code).toBe(2);
  expect(stderr).toMatch(/0\.0\.0\.0.*ssh -L/);
});
