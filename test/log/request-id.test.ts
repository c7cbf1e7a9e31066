/** One request followed through the logs of several processes by its id. */
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { expect, it } from 'vitest';
import { run } from '../../src/cli/run.js';
import { loggedScheduler, openLog } from '../../src/log/index.js';
import { RequestClient } from '../../src/scheduler-client/index.js';
import { dualpath } from '../cli/support.js';
import { completion, post, stage, until } from '../proxy/support.js';
import { FakeEngine } from '../serve/support.js';
import { linesOf, memoryStream } from './support.js';

const local = { host: '127.0.0.1', port: 0 };

it('a scheduler and two engines in processes of their own', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'dualpath-log-'));
  const argv = [
    ...['replay', 'examples/traces/agent-sessions-sample.jsonl', '--sessions', '1', '--turns', '2'],
    ...['--scale', '0.004', '--snic-rate', '200MB/s', '--mode', 'split', '--distributed', '--store', folder],
    ...['--prefill-buffer', '8MiB', '--decode-buffer', '16MiB', '--prefill-hbm', '8MiB'],
    ...['--decode-hbm', '16MiB', '--json', '--log-level', 'debug'],
  ];
  const { code, stdout, stderr } = await dualpath(argv);
  expect([code, JSON.parse(stdout)]).toMatchObject([0, { modes: { split: {} } }]);
  const lines = linesOf(stderr);
  const id = lines.find(({ msg }) => msg === 'request ended')!['request_id'];
  const of = (service: string, role?: string): string[] =>
    lines
      .filter((line) => line['request_id'] === id && line['service'] === service && line['role'] === role)
      .map(({ msg, stage: done }) => (done === undefined ? msg : `${msg}: ${done as string}`));
  expect(of('replay')).toEqual(['request submitted', 'request ended']);
  expect(of('scheduler')).toContain('request assigned');
  expect(of('scheduler').at(-1)).toBe('request ended');
  expect(of('engine', 'prefill').slice(0, 2)).toEqual(['request taken', 'stage done: prefill-read']);
  expect(of('engine', 'prefill').at(-1)).toBe('stage done: prefill');
  expect(of('engine', 'decode')[0]).toBe('request taken');
  expect(of('engine', 'decode').at(-1)).toBe('stage done: request');
  expect(new Set(lines.map(({ pid }) => pid)).size).toBe(4);
  rmSync(folder, { recursive: true });
}, 60_000);

it('dualpath serve and the engines that join it', async () => {
  const controller = new AbortController();
  const [stdout, { stream: stderr, lines }] = [new PassThrough(), memoryStream()];
  const argv = ['serve', '--listen', '127.0.0.1:0', '--grace', '0', '--json', '--log-level', 'info'];
  const exited = run(argv, { stdout, stderr, signal: controller.signal });
  const listens = (): string | undefined =>
    lines()
      .map(({ msg }) => /^scheduler on (\S+),/.exec(msg)?.[1])
      .find((found) => found !== undefined);
  await until(() => listens() !== undefined, 'serve', 10_000);
  const scheduler = listens()!;
  const engines = (['prefill', 'decode'] as const).map((role) => {
    const own = memoryStream();
    const { log } = openLog({ level: 'info', stream: own.stream, fields: { engine: role } });
    const engine = new FakeEngine(role, role, [scheduler], { model: 'demo' }, (client) =>
      loggedScheduler(client, log),
    );
    return { engine, lines: own.lines };
  });
  const client = new RequestClient({ endpoints: [scheduler], client: 'front', model: 'demo' });
  const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
  const work = { promptTokens: 256, hitTokens: 128, maxNewTokens: 4, key: 'a', traceparent };
  await client.submit(work).ended;
  await Promise.all([client.close(), ...engines.map(({ engine }) => engine.close())]);
  controller.abort();
  expect(await exited).toBe(0);
  stdout.end();
  expect(JSON.parse(await text(stdout))).toMatchObject({ completed: 1 });
  const about = (all: ReturnType<typeof lines>): string[] =>
    all.filter(({ request_id }) => request_id === 'front/a').map(({ msg }) => msg);
  expect(about(lines())).toEqual(['request assigned', 'request ended']);
  const assigned = lines().find(({ msg }) => msg === 'request assigned')!;
  expect(assigned).toMatchObject({ trace_id: '4bf92f3577b34da6a3ce929d0e0e4736', service: 'scheduler' });
  for (const engine of engines) {
    expect(about(engine.lines())).toEqual(['request taken', 'stage done']);
    expect(engine.lines()[0]).toMatchObject({ admission: assigned['admission'], side: assigned['side'] });
  }
});

it('the router, its replica and the client', async () => {
  const seen: (string | undefined)[] = [];
  const replica = createServer((request, response) => {
    if (request.method === 'POST') seen.push(String(request.headers['x-request-id']));
    const body = request.url === '/v1/models' ? { data: [{ id: 'emulated' }] } : { id: 'x', choices: [] };
    response.setHeader('x-request-id', 'of the replica').setHeader('content-type', 'application/json');
    response.end(JSON.stringify(body));
  });
  await new Promise<void>((resolve) => replica.listen(local.port, local.host, resolve));
  const { stream, lines } = memoryStream();
  const { log } = openLog({ level: 'info', stream });
  const replicas = [{ url: `http://127.0.0.1:${(replica.address() as AddressInfo).port}`, name: 'one' }];
  await using at = await stage(0, { log, replicas });
  const url = `${at.url}/v1/completions`;
  const given = await post(url, completion('hello'), { 'x-request-id': 'mine-1' });
  const made = await post(url, completion('hello'), { 'x-request-id': 'not one id' });
  const refused = await post(url, 'no JSON', { 'x-request-id': 'mine-2' });
  expect([given.status, made.status, refused.status]).toEqual([200, 200, 400]);
  const id = made.headers.get('x-request-id');
  expect(id).toMatch(/^[\da-f-]{36}$/);
  expect([given, refused].map(({ headers }) => headers.get('x-request-id'))).toEqual(['mine-1', 'mine-2']);
  expect(seen).toEqual(['mine-1', id]);
  expect(lines()).toMatchObject([
    { request_id: 'mine-1', msg: 'request ended', outcome: 'ok', replica: 'one', status: 200, tries: 1 },
    { request_id: id, msg: 'request ended', level: 'info' },
    { request_id: 'mine-2', msg: 'request refused', level: 'warn', status: 400, path: '/v1/completions' },
  ]);
  replica.closeAllConnections();
  replica.close();
});
