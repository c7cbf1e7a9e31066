/** What the page's server answers. */
import { request as httpRequest } from 'node:http';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { WebConsole, type ConsoleSnapshot, type RequestHistory } from '../../src/console/index.js';
import { errorOf } from '../transfer/support.js';
import { openConsole } from './support.js';

let console_: Awaited<ReturnType<typeof openConsole>>;
beforeAll(async () => {
  console_ = await openConsole();
});
afterAll(() => console_.page.close());

async function get(path: string): Promise<{ status: number; document: unknown }> {
  const response = await fetch(new URL(path, console_.page.url));
  return { status: response.status, document: await response.json() };
}

it('tells the state of every engine and node', async () => {
  const { status, document } = await get('/state');
  const state = document as ConsoleSnapshot;
  expect(status).toBe(200);
  expect(state.engines).toHaveLength(144);
  expect(state.nodes).toHaveLength(18);
  expect(state).toMatchObject({
    epoch: 7,
    statistics: { submitted: 20, admitted: 20, running: 20, waiting: 0 },
  });
  expect(state.engines.reduce((sum, { requests }) => sum + requests, 0)).toBe(40); // a PE and a DE each
  expect(state.nodes.reduce((sum, { readQueueBlocks }) => sum + readQueueBlocks, 0)).toBe(60);
  expect(state.latestRequests[0]).toBe('r19');
});

it('tells the path and the time of a request', async () => {
  const { prefillEngine, decodeEngine } = console_.assignments.find(({ request }) => request === 'r3')!;
  const { document } = await get('/request?name=r3');
  const { path, timeline } = document as RequestHistory;
  expect(path).toMatchObject({ prefillEngine, decodeEngine, promptBlocks: 4 });
  expect(timeline.map(({ kind, atS }) => [kind, atS])).toEqual([
    ['submitted', 1],
    ['assigned', 1.25],
    ['tokens', 1.5],
  ]);
  expect(timeline[1]!.detail).toMatch(
    new RegExp(`${prefillEngine} -> ${decodeEngine}.*try 1; waited 250.0 ms`),
  );
  expect(await get('/request?name=none')).toMatchObject({ status: 404 });
});

it('forgets the oldest requests, and shortens endless ones', async () => {
  for (let index = 0; index < 5000; index++)
    console_.page.observe({ atS: 2, kind: 'submitted', request: `many-${index}` });
  expect(await get('/request?name=many-0')).toMatchObject({ status: 404 });
  for (let index = 0; index < 100; index++)
    console_.page.observe({
      atS: 3,
      kind: 'returned',
      request: 'many-4999',
      error: new Error('engine gone'),
    });
  const { document } = await get('/request?name=many-4999');
  expect(document).toMatchObject({ omitted: 37 });
  expect((document as RequestHistory).timeline).toHaveLength(64);
});

it('says that a standby does not lead', async () => {
  console_.lead(false);
  expect(await get('/state')).toMatchObject({ status: 503, document: { error: /./ } });
  console_.lead(true);
});

it('is for browsers of this host only', async () => {
  const { host, port } = console_.page.address;
  const status = await new Promise((resolve) => {
    const headers = { host: 'evil.example' };
    httpRequest({ host, port, path: '/state', headers }, ({ statusCode }) => resolve(statusCode)).end();
  });
  expect(status).toBe(403);
  expect(await errorOf(() => WebConsole.open({ host: '0.0.0.0', port: 0 }, () => undefined))).toMatchObject({
    code: 'INVALID_ARGUMENT',
    message: expect.stringMatching(/0\.0\.0\.0.*ssh -L/) as string,
  });
  expect(await errorOf(() => WebConsole.open({ host, port }, () => undefined))).toMatchObject({
    code: 'INVALID_ARGUMENT',
    message: expect.stringMatching(/choose another --web address/) as string,
  });
  const posted = await fetch(console_.page.url, { method: 'POST' });
  expect(posted.status).toBe(405);
  expect((await fetch(new URL('/etc/passwd', console_.page.url))).status).toBe(404);
});
