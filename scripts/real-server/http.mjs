/** What the test needs of HTTP: answers as bytes, streams that are left, and a tap between router and server. */
import { request } from 'node:http';
import { connect, createServer } from 'node:net';

const answerMs = 120_000;

/**
 * Posts (or gets, without a body) and collects the answer's body as it came.
 * @param leaveAfter events after which the client goes away; never by default
 * @returns status, headers, body, and how it ended: 'end', 'left', or what broke
 */
export function ask(url, body, { leaveAfter = Infinity } = {}) {
  return new Promise((resolve) => {
    const chunks = [];
    const result = { status: 0, headers: {}, body: Buffer.alloc(0), ended: '' };
    const end = (how) => {
      if (result.ended !== '') return;
      resolve(Object.assign(result, { ended: how, body: Buffer.concat(chunks) }));
    };
    const options = { method: body === undefined ? 'GET' : 'POST', agent: false, timeout: answerMs };
    const sent = request(url, { ...options, headers: { 'content-type': 'application/json' } }, (response) => {
      Object.assign(result, { status: response.statusCode, headers: response.headers });
      response.on('data', (chunk) => {
        chunks.push(chunk);
        if (eventsOf(Buffer.concat(chunks)).length < leaveAfter) return;
        end('left');
        sent.destroy();
      });
      response.on('end', () => end('end'));
      response.on('error', (error) => end(error.code ?? error.message));
    });
    sent.on('timeout', () => sent.destroy(new Error(`no byte for ${answerMs / 1000} s`)));
    sent.on('error', (error) => end(error.code ?? error.message));
    sent.end(body === undefined ? undefined : JSON.stringify(body));
  });
}

export const json = async (url) => JSON.parse((await ask(url)).body.toString());

/** What follows `data: ` of each event. */
export function eventsOf(body) {
  return [...body.toString().matchAll(/^data: (.*)$/gm)].map(([, data]) => data);
}

/**
 * A TCP proxy in front of a server that keeps each POST's answer as it left the server.
 * @returns its URL and the exchanges so far: path and received bytes
 */
export async function openTap(url) {
  const { hostname, port } = new URL(url);
  const exchanges = [];
  const sockets = new Set();
  const server = createServer((near) => {
    const far = connect(Number(port), hostname);
    let exchange;
    near.on('data', (data) => {
      // One request after the other: its first bytes come in one piece.
      const [, method, path] = /^(GET|POST) (\S+) HTTP/.exec(data.toString('latin1', 0, 200)) ?? [];
      if (method !== undefined) exchange = { path, received: [] };
      if (method === 'POST') exchanges.push(exchange);
      far.write(data);
    });
    far.on('data', (data) => {
      exchange?.received.push(data);
      near.write(data);
    });
    for (const [socket, other] of [
      [near, far],
      [far, near],
    ]) {
      sockets.add(socket);
      socket.setNoDelay(true);
      socket.on('error', () => undefined);
      socket.on('close', () => {
        sockets.delete(socket);
        other.destroy();
      });
    }
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const close = () => {
    server.close();
    for (const socket of sockets) socket.destroy();
  };
  return { url: `http://127.0.0.1:${server.address().port}`, exchanges, close };
}

/** The body of an answer as it was on the wire, with its chunks put together. */
export function bodyOnWire({ received }) {
  const bytes = Buffer.concat(received);
  const headEnd = bytes.indexOf('\r\n\r\n');
  const head = bytes.toString('latin1', 0, headEnd).toLowerCase();
  if (!head.includes('transfer-encoding: chunked')) return bytes.subarray(headEnd + 4);
  const parts = [];
  for (let at = headEnd + 4; ;) {
    const lineEnd = bytes.indexOf('\r\n', at);
    const length = Number.parseInt(bytes.toString('latin1', at, lineEnd), 16);
    if (!(length > 0)) return Buffer.concat(parts);
    parts.push(bytes.subarray(lineEnd + 2, lineEnd + 2 + length));
    at = lineEnd + 2 + length + 2;
  }
}
