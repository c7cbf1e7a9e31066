/** Worker threads run built code: this test imports the package as it is built. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { resolve } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { Proxy } from '../../src/proxy/index.js';
import { post } from './support.js';

const built = (await import(resolve(import.meta.dirname, '../../dist/proxy/index.js'))) as {
  Proxy: typeof Proxy;
};

const closing: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

/** Says what it got; the first answer to a body of `refuseBytes` comes before the body is read, and closes. */
async function upstream(refuseBytes: number): Promise<{ url: string; got: string[] }> {
  const got: string[] = [];
  let refused = false;
  const server = createServer((request, response) => {
    if (request.method === 'GET') {
      response.setHeader('content-type', 'application/json').end('{"data":[{"id":"m"}]}');
      return;
    }
    if (Number(request.headers['content-length']) === refuseBytes && !refused) {
      refused = true;
      response.writeHead(503, { connection: 'close' }).end();
      return;
    }
    const pieces: Buffer[] = [];
    request.on('data', (piece: Buffer) => pieces.push(piece));
    request.on('end', () => {
      got.push(Buffer.concat(pieces).toString());
      response.setHeader('content-type', 'application/json').end('{"choices":[]}');
    });
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  closing.push(() => server.close());
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, got };
}

describe('large bodies', () => {
  it('arrive as they were, tried again or not, though their memory is used again; none stays accounted for', async () => {
    const bodies = [600_000, 1_300_000, 3_000_000, 1_200_000, 700_000].map((bytes, i) =>
      JSON.stringify({ model: 'm', prompt: `${i}`.repeat(bytes) }),
    );
    const { url: replica, got } = await upstream(bodies[2]!.length);
    const proxy = new built.Proxy({ port: 0, adminPort: 0, replicas: [{ url: replica }] });
    await proxy.start();
    closing.push(() => proxy.close());
    const send = (body: string): Promise<{ status: number }> =>
      post(`http://127.0.0.1:${proxy.port}/v1/completions`, body);
    for (const body of bodies) {
      const { status } = await send(body);
      if (status === 503) expect(await send(body)).toMatchObject({ status: 200 });
      expect(got.at(-1) === body).toBe(true);
    }
    await Promise.all(bodies.map(send));
    expect(got.slice(-5).sort()).toEqual([...bodies].sort());
    await vi.waitFor(async () => {
      const page = await fetch(`http://127.0.0.1:${proxy.adminPort}/metrics`);
      expect(await page.text()).toMatch(/body_bytes 0$/m);
    });
  });
});
