import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { expect, it } from 'vitest';
import { run } from '../../src/cli/run.js';
import { RequestClient } from '../../src/scheduler-client/index.js';
import { FakeEngine } from '../serve/support.js';
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
  const argv = [
    ...[
      'serve',
      '--listen',
      '127.0.0.1:0',
      '--web',
      '127.0.0.1:0',
      '--metrics',
      '0',
      '--grace',
      '0',
      '--json',
    ],
  ];
  const exited = run(argv, { stdout, stderr, signal: controller.signal });
  const url = await page;
  const state = (await (await fetch(new URL('/state', url))).json()) as object;
  expect(state).toMatchObject({
    epoch: expect.any(Number) as number,
    engines: [],
    statistics: { waiting: 0 },
  });
  const metrics = await (await fetch(/metrics at (\S+)/.exec(said)![1]!)).text();
  expect(metrics).toMatch(/^dualpath_scheduler_waiting_requests 0$/m);

  const scheduler = /scheduler on (\S+),/.exec(said)![1]!;
  const more = { model: 'demo' };
  const engines = (['prefill', 'decode'] as const).map(
    (role) => new FakeEngine(role, role, [scheduler], more),
  );
  const client = new RequestClient({ endpoints: [scheduler], client: 'front', model: 'demo' });
  const submitted = client.submit({ promptTokens: 256, hitTokens: 128, maxNewTokens: 4, key: 'a' });
  await submitted.ended;
  const explained = await dualpath(['explain', 'front/a', '--scheduler', scheduler]);
  expect(explained).toMatchObject({ code: 0, stdout: expect.stringMatching(/prefill[^]*decode/) as string });
  const shown = await fetch(new URL('/request?name=front/a', url));
  expect(await shown.json()).toMatchObject({ path: { prefillEngine: 'prefill', decodeEngine: 'decode' } });
  expect(await dualpath(['explain', 'front/b', '--scheduler', scheduler])).toMatchObject({
    code: 2,
    stderr: expect.stringMatching(/front\/b.*client\/key/) as string,
  });
  await Promise.all([client.close(), ...engines.map((engine) => engine.close())]);
  controller.abort();
  expect(await exited).toBe(0);
  stdout.end();
  expect(JSON.parse(await text(stdout))).toMatchObject({ submitted: 1, completed: 1, model: 'demo' });
  await expect(fetch(url)).rejects.toThrow();
});

it('refuses to show itself to other hosts', async () => {
  const { code, stderr } = await dualpath(['serve', '--listen', '127.0.0.1:0', '--web', '0.0.0.0:0']);
  expect(code).toBe(2);
  expect(stderr).toMatch(/0\.0\.0\.0.*ssh -L/);
});
