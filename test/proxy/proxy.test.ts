/** The router end to end: over HTTP, in front of emulated replicas. */
import { createServer, request as httpRequest, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, it } from 'vitest';
import { completion, post, raw, stage, until } from './support.js';

interface Completion {
  usage: { prompt_tokens: number; prompt_tokens_details: { cached_tokens: number } };
}

const long = 'a shared beginning of some length, which several prompts have. '.repeat(100);

describe('routing over HTTP', () => {
  it('answers every API, whole and as a stream, as the replica does', async () => {
    await using at = await stage(2);
    const direct = at.replicas[0]!.url;
    const messages = [{ role: 'user', content: 'hello' }];
    const requests: [string, object][] = [
      ['/v1/completions', completion('hello')],
      ['/v1/chat/completions', { model: 'emulated', messages, max_tokens: 3 }],
      ['/v1/messages', { model: 'emulated', messages, max_tokens: 3, system: 'be brief' }],
      ['/v1/responses', { model: 'emulated', input: 'hello', max_output_tokens: 3 }],
    ];
    const plain = (text: string): string => text.replace(/(emulated|resp)_\w+/g, 'id');
    for (const [path, body] of requests) {
      for (const stream of [false, true]) {
        const through = await post(at.url + path, { ...body, stream });
        const straight = await post(direct + path, { ...body, stream });
        expect(through.status).toBe(200);
        expect(plain(through.text).replace(/"cached_tokens":\d+/g, '')).toBe(
          plain(straight.text).replace(/"cached_tokens":\d+/g, ''),
        );
        expect(through.headers.get('content-type')).toBe(straight.headers.get('content-type'));
      }
    }
    const models = await (await fetch(`${at.url}/v1/models`)).json();
    expect(models).toMatchObject({ data: [{ id: 'emulated' }] });
  });

  it('sends what shares a prefix where it is cached', async () => {
    await using at = await stage(4);
    await post(`${at.url}/v1/completions`, completion(`${long} first`));
    for (const end of ['second', 'third']) {
      const answer = (
        await post(`${at.url}/v1/completions`, completion(`${long} ${end}`))
      ).json<Completion>();
      expect(answer.usage.prompt_tokens_details.cached_tokens).toBeGreaterThan(1000);
    }
    const used = at.replicas.filter(({ engines }) => engines[0]!.promptTokens > 0);
    expect(used).toHaveLength(1);
    const { values } = await at.proxy.metrics.reportedHitTokens.get();
    expect(values[0]!.value).toBeGreaterThan(2000);
  });

  it('leaves the ledger empty, whatever became of a request', async () => {
    await using at = await stage(2);
    await Promise.all([
      post(`${at.url}/v1/completions`, completion('one', { stream: true })),
      post(`${at.url}/v1/completions`, completion('two')),
      post(`${at.url}/v1/completions`, completion([])),
      post(`${at.url}/v1/completions`, { model: 'none', prompt: 'x' }),
    ]);
    const { router } = at.proxy.fleet.routing.groupOf('emulated');
    await until(() => at.proxy.inFlight === 0, 'no request in flight');
    expect(router.requests).toBe(0);
  });

  it('tells the replica when the client leaves', async () => {
    await using at = await stage(1, {}, { tokenMs: 20 });
    const engine = at.replicas[0]!.engines[0]!;
    const controller = new AbortController();
    const response = await fetch(`${at.url}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(completion('x', { stream: true, max_tokens: 100_000 })),
      signal: controller.signal,
    });
    const reader = response.body!.getReader();
    await reader.read();
    expect(engine.runningRequests).toBe(1);
    controller.abort();
    await reader.read().catch(() => undefined);
    await until(() => engine.runningRequests === 0, 'the engine stops');
    await until(() => at.proxy.inFlight === 0, 'the flight has landed');
    expect(at.proxy.fleet.routing.groupOf('emulated').router.requests).toBe(0);
  });

  it('keeps previous_response_id on the replica that has it', async () => {
    await using at = await stage(4);
    for (let i = 0; i < 6; i++) {
      const first = (
        await post(`${at.url}/v1/responses`, {
          model: 'emulated',
          input: `question ${i}`,
          stream: i % 2 === 1,
        })
      ).text;
      const id = /"id":"(resp_\w+)"/.exec(first)![1];
      const second = await post(`${at.url}/v1/responses`, {
        model: 'emulated',
        input: `something else ${i}`,
        previous_response_id: id,
      });
      // A replica without the response answers 404.
      expect(second.status).toBe(200);
    }
  });

  it('addresses ranks by header, and never by what a client says', async () => {
    await using at = await stage(1, {}, { ranks: 4 });
    const { url } = at.replicas[0]!;
    await at.proxy.fleet.remove(url.slice('http://'.length));
    at.proxy.fleet.add({ url, ranks: 4 });
    await until(() => at.proxy.fleet.routing.groups.has('emulated'), 'the models are known');
    const prompt = `${long} for one rank`;
    for (const rank of ['0', '1', '2', '3']) {
      const own = { 'x-data-parallel-rank': rank };
      expect((await post(`${at.url}/v1/completions`, completion(prompt), own)).status).toBe(200);
    }
    const tokens = at.replicas[0]!.engines.map(({ promptTokens }) => promptTokens);
    expect(tokens.filter((count) => count > 0)).toHaveLength(1);
  });

  it("writes SGLang's rank into the body in place of the client's", async () => {
    await using at = await stage(0);
    await using server = await stage(1, { replicas: [] }, { ranks: 2 });
    at.proxy.fleet.add({ url: server.replicas[0]!.url, ranks: 2, engine: 'sglang' });
    await until(() => at.proxy.fleet.routing.groups.has('emulated'), 'the models are known');
    // The emulated replica refuses a rank that it does not have.
    const answer = await post(`${at.url}/v1/completions`, completion('x', { data_parallel_rank: 9 }));
    expect(answer.status).toBe(200);
  });

  it('passes other paths on with their bodies', async () => {
    await using at = await stage(2);
    const answer = await post(`${at.url}/v1/embeddings`, { model: 'emulated', input: 'x' });
    expect(answer.json()).toMatchObject({ emulated: true });
    expect((await fetch(`${at.url}/metrics`)).status).toBe(404);
    expect((await fetch(`${at.url}/v1/none`)).status).toBe(404);
  });

  it('serves tenants by their tokens, and keeps their prefixes apart', async () => {
    const digest = async (token: string): Promise<string> =>
      Buffer.from(await crypto.subtle.digest('SHA-256', Buffer.from(token))).toString('hex');
    const tenants = new Map([
      [await digest('token-a'), 'a'],
      [await digest('token-b'), 'b'],
    ]);
    await using at = await stage(2, { tenants });
    const ask = (token: string): ReturnType<typeof post> =>
      post(`${at.url}/v1/completions`, completion(long), { authorization: `Bearer ${token}` });
    expect((await ask('token-c')).status).toBe(401);
    await ask('token-a');
    await ask('token-a');
    const hits = async (): Promise<number> =>
      (await at.proxy.metrics.predictedHitTokens.get()).values[0]!.value;
    const ofOne = await hits();
    expect(ofOne).toBeGreaterThan(0);
    await ask('token-b');
    expect(await hits()).toBe(ofOne);
  });
});

describe('back-pressure', () => {
  it('stops reading from the replica while the client takes nothing', async () => {
    let sentBytes = 0;
    const chunk = Buffer.alloc(64 * 1024, 'x');
    const server = createServer((request, response) => {
      request.resume();
      if (request.method === 'GET') {
        response.end(JSON.stringify({ data: [{ id: 'emulated' }] }));
        return;
      }
      // As much as the connection takes, for ever.
      const send = (): void => {
        let hasRoom = true;
        while (hasRoom && !response.destroyed) {
          hasRoom = response.write(chunk);
          sentBytes += chunk.length;
        }
        response.once('drain', send);
      };
      send();
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    await using at = await stage(0, { replicas: [{ url: `http://127.0.0.1:${port}` }] });
    const request = httpRequest(`${at.url}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
    });
    request.on('error', () => undefined);
    request.end(JSON.stringify(completion('x', { stream: true })));
    const response = await new Promise<IncomingMessage>((resolve) => request.once('response', resolve));
    response.pause();
    const [target] = [...at.proxy.fleet.routing.targets.values()];
    const isPaused = (): boolean => [...target!.attempts].some(({ pausedMs }) => pausedMs > 0);
    await until(isPaused, 'the attempt is paused');
    // What is under way is in the buffers of three sockets.
    let beforeBytes = -1;
    await until(() => {
      const isStill = beforeBytes === sentBytes;
      beforeBytes = sentBytes;
      return isStill;
    }, 'the replica sends no more');
    response.on('error', () => undefined);
    response.resume();
    await until(() => sentBytes > 2 * beforeBytes, 'it goes on');
    request.destroy();
    await until(() => at.proxy.inFlight === 0, 'the flight has landed');
    server.closeAllConnections();
    server.close();
  });
});

describe('bad input', () => {
  const ask = (port: number, head: string, body = ''): Promise<string> =>
    raw(port, `POST /v1/completions HTTP/1.1\r\nhost: x\r\n${head}\r\n${body}`);

  it('is refused with what is wrong', async () => {
    await using at = await stage(1, { limits: { bodyBytes: 1000 } });
    const url = `${at.url}/v1/completions`;
    const cases: [unknown, Record<string, string>, number, RegExp][] = [
      ['{"model":', {}, 400, /not JSON/],
      ['[]', {}, 400, /no object/],
      ['', {}, 400, /empty/],
      [{ prompt: 'x' }, {}, 400, /"model"|model/],
      [{ model: 'emulated' }, {}, 400, /no prompt/],
      [{ model: 'emulated', prompt: [1, -2] }, {}, 400, /no prompt/],
      [completion('x'), { 'content-type': 'text/plain' }, 415, /text\/plain/],
      [completion('x'), { 'content-encoding': 'gzip' }, 415, /gzip/],
      [completion('x'.repeat(2000)), {}, 413, /1000 bytes/],
      [completion('x'), { 'x-request-timeout-ms': 'soon' }, 400, /milliseconds/],
    ];
    for (const [body, headers, status, message] of cases) {
      const answer = await post(url, body, headers);
      expect([body, answer.status]).toEqual([body, status]);
      expect(answer.json<{ error: { message: string } }>().error.message).toMatch(message);
    }
  });

  it('smuggles nothing', async () => {
    await using at = await stage(1);
    const { port } = at.proxy;
    const json = JSON.stringify(completion('x'));
    const chunked = `${json.length.toString(16)}\r\n${json}\r\n0\r\n\r\n`;
    const close = 'connection: close\r\ncontent-type: application/json\r\n';
    expect(await ask(port, `${close}transfer-encoding: chunked\r\n`, chunked)).toMatch(/^HTTP\/1.1 200/);
    const both = `${close}content-length: 3\r\ntransfer-encoding: chunked\r\n`;
    expect(await ask(port, both, chunked)).toMatch(/^HTTP\/1.1 400/);
    expect(await ask(port, `${close}content-length: 3\r\ncontent-length: 4\r\n`, json)).toMatch(
      /^HTTP\/1.1 400/,
    );
    expect(await ask(port, `${close}transfer-encoding: xchunked\r\n`, chunked)).toMatch(/^HTTP\/1.1 400/);
    expect(await ask(port, `${close}transfer-encoding : chunked\r\n`, chunked)).toMatch(/^HTTP\/1.1 400/);
    expect(await raw(port, 'GET /v1/../metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n')).toMatch(
      /400/,
    );
    expect(
      await raw(port, 'GET /v1/%2e%2e/metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n'),
    ).toMatch(/400/);
    expect(
      await raw(port, 'GET http://other/v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n'),
    ).toMatch(/400/);
    expect(at.replicas[0]!.engines[0]!.finished).toBe(1);
  });

  it('handles Expect, slow heads and half-closed connections', async () => {
    await using at = await stage(1, { times: { headersMs: 300, requestMs: 600 } });
    const { port } = at.proxy;
    const json = JSON.stringify(completion('x'));
    const head = `content-type: application/json\r\ncontent-length: ${json.length}\r\nconnection: close\r\n`;
    expect(await ask(port, `${head}expect: 100-continue\r\n`, json)).toMatch(
      /^HTTP\/1.1 100[\s\S]*HTTP\/1.1 200/,
    );
    expect(await ask(port, `${head}expect: something\r\n`, json)).toMatch(/^HTTP\/1.1 417/);
    expect(await raw(port, 'POST /v1/completions HTTP/1.1\r\nhost: x\r\n', 5000)).toMatch(/^HTTP\/1.1 408/);
    await ask(port, 'content-type: application/json\r\ncontent-length: 1000\r\n', '{"model"');
    await until(() => at.proxy.inFlight === 0, 'nothing in flight');
  });

  it('says clearly that there is no replica', async () => {
    await using at = await stage(0);
    const answer = await post(`${at.url}/v1/completions`, completion('x'));
    expect([answer.status, answer.headers.get('retry-after')]).toEqual([503, '1']);
    expect((await fetch(`${at.url}/health`)).status).toBe(503);
  });

  it('answers 429 with a time when too many wait', async () => {
    // Every request is more than an engine is given at once, so all but the first wait at the router.
    await using at = await stage(1, {
      dispatchedTokensMax: 1,
      limits: { waitingRequests: 1 },
      times: { hungMs: 60_000 },
    });
    at.replicas[0]!.setFault({ kind: 'hang' });
    const controller = new AbortController();
    const send = (): Promise<Response | undefined> =>
      fetch(`${at.url}/v1/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(completion('x', { stream: true })),
        signal: controller.signal,
      }).catch(() => undefined);
    const pending = [send(), send()];
    await until(() => at.proxy.inFlight === 2, 'one is with the engine, one waits');
    const refused = await send();
    expect(refused!.status).toBe(429);
    expect(Number(refused!.headers.get('retry-after'))).toBeGreaterThan(0);
    controller.abort();
    await Promise.all(pending);
  });
});
