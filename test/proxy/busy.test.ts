/** Servers that are busy, and servers that stand still: counters tell them apart, where they are answered for. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, it } from 'vitest';
import { completion, post, stage } from './support.js';

const busyMs = 1200;

/** A server that takes its time for an answer and counts only at its end, as llama.cpp's within a step. */
async function slowServer(answersForCounters: boolean): Promise<{ url: string } & AsyncDisposable> {
  let busy = 0;
  const server = createServer((request, response) => {
    request.resume();
    if (request.url === '/v1/models') response.end('{"data": [{"id": "emulated"}]}');
    else if (request.url === '/health') response.end('{}');
    else if (request.url === '/metrics') {
      if (busy === 0 || answersForCounters) response.end('llamacpp:n_decode_total 1\n');
    } else {
      busy++;
      setTimeout(() => {
        busy--;
        response.end('{"choices": []}');
      }, busyMs);
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    [Symbol.asyncDispose]: () =>
      new Promise((resolve) => {
        server.closeAllConnections();
        server.close(() => resolve());
      }),
  };
}

describe('a server that sends nothing for longer than a hung one may', () => {
  it.each([
    ['is busy while it does not answer for its counters', false, 60_000, [200, null]],
    [
      'is passed over when its counters stand still, and waited for where nobody else is',
      true,
      60_000,
      [200, 'hung'],
    ],
    ['is given up in the end', true, 500, [504, 'hung']],
  ])('%s', async (_what, answersForCounters, streamIdleMs, expected) => {
    await using server = await slowServer(answersForCounters);
    const times = { hungMs: 300, pollMs: 50, ejectMs: 60_000, streamIdleMs };
    await using at = await stage(0, { replicas: [{ url: server.url }], times });
    const { status } = await post(`${at.url}/v1/completions`, completion('x'));
    expect([status, at.proxy.fleet.status()[0]!.targets[0]!.ejected]).toEqual(expected);
  });
});
