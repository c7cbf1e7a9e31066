import { randomUUID } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { isRequestId } from '../log/index.js';

/** Headers of one connection only (RFC 9110, 7.6.1), and what the router answers for itself. */
const hopByHop: ReadonlySet<string> = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'proxy-authenticate',
  'proxy-authorization',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'http2-settings',
]);

/** A client may not choose the rank, and the router frames and expects by itself. */
const notForReplicas: ReadonlySet<string> = new Set([
  'host',
  'expect',
  'content-length',
  'x-data-parallel-rank',
  'x-request-timeout-ms',
  'x-request-id',
]);

/** The client's own, or one made up: the same for the replica, in the answer and in the log. */
export function requestIdOf({ headers }: IncomingMessage): string {
  const given = headers['x-request-id'];
  if (isRequestId(given)) return given;
  const id = randomUUID();
  headers['x-request-id'] = id;
  return id;
}

/** Names in the connection header, in lower case; null where there are none beyond the usual. */
function namedByConnection(raw: readonly string[]): Set<string> | null {
  let named: Set<string> | null = null;
  for (let i = 0; i + 1 < raw.length; i += 2) {
    if (raw[i]!.length !== 10 || raw[i]!.toLowerCase() !== 'connection') continue;
    const value = raw[i + 1]!.toLowerCase();
    if (value === 'keep-alive' || value === 'close') continue;
    named ??= new Set();
    for (const name of value.split(',')) named.add(name.trim());
  }
  return named;
}

/** What goes on to the replica: everything but what belongs to the client's connection. Names and values in turn. */
export function requestHeaders(raw: readonly string[], requestId: string): string[] {
  const named = namedByConnection(raw);
  const kept: string[] = ['x-request-id', requestId];
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const name = raw[i]!.toLowerCase();
    if (hopByHop.has(name) || notForReplicas.has(name) || named?.has(name) === true) continue;
    kept.push(raw[i]!, raw[i + 1]!);
  }
  return kept;
}

/** What goes back to the client. `raw` as undici has it: names and values in turn. */
export function responseHeaders(raw: readonly Buffer[], requestId: string): string[] {
  const text: string[] = [];
  for (const each of raw) text.push(each.toString('latin1'));
  const named = namedByConnection(text);
  const kept: string[] = ['x-request-id', requestId];
  for (let i = 0; i + 1 < text.length; i += 2) {
    const name = text[i]!.toLowerCase();
    if (name === 'x-request-id' || hopByHop.has(name) || named?.has(name) === true) continue;
    kept.push(text[i]!, text[i + 1]!);
  }
  return kept;
}
