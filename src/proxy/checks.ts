import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { ApiError, errorBody } from '../openai/index.js';

/** @throws ApiError 400 for a target that is no plain path */
export function pathOf({ url = '' }: IncomingMessage): string {
  const path = url.split('?', 1)[0]!;
  if (!path.startsWith('/') || path.includes('//') || /(^|\/)(\.|%2e){1,2}(\/|$)|\\|%2f|%5c/i.test(path)) {
    throw new ApiError(400, 'the request target must be a plain path', { code: 'invalid_path' });
  }
  return path;
}

/** @throws ApiError 415 for anything but plain JSON */
export function checkContent({ headers }: IncomingMessage): void {
  const type = headers['content-type'];
  if (type !== undefined && !/^application\/([\w.-]+\+)?json\b/i.test(type)) {
    throw new ApiError(415, `the content type ${type.slice(0, 100)} is not application/json`);
  }
  const encoding = headers['content-encoding'];
  if (encoding !== undefined && encoding !== 'identity') {
    throw new ApiError(415, `bodies encoded with ${encoding.slice(0, 100)} are not read: send plain JSON`);
  }
}

/** @throws ApiError 400 */
export function deadlineOf({ headers }: IncomingMessage, mostMs: number): number {
  const given = headers['x-request-timeout-ms'];
  if (given === undefined) return mostMs;
  if (!/^\d{1,9}$/.test(String(given)) || Number(given) === 0) {
    throw new ApiError(400, 'x-request-timeout-ms must be a whole number of milliseconds, from 1');
  }
  return Math.min(Number(given), mostMs);
}

export function modelIn(body: Buffer): string | null {
  try {
    const { model } = JSON.parse(body.toString('utf8')) as { model?: unknown };
    return typeof model === 'string' ? model : null;
  } catch {
    return null;
  }
}

const refusals: Readonly<Record<string, [status: string, message: string]>> = {
  HPE_HEADER_OVERFLOW: ['431 Request Header Fields Too Large', 'the headers are larger than the limit'],
  HPE_CHUNK_EXTENSIONS_OVERFLOW: ['413 Payload Too Large', 'the chunk extensions are too large'],
  ERR_HTTP_REQUEST_TIMEOUT: ['408 Request Timeout', 'the request took too long to arrive'],
};

/** What the parser refuses is answered as far as that goes, and the connection ends. */
export function refuseClient(error: NodeJS.ErrnoException, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable || socket.bytesWritten > 0) {
    socket.destroy();
    return;
  }
  const [status, message] = refusals[error.code ?? ''] ?? [
    '400 Bad Request',
    'this is no valid HTTP/1.1 request',
  ];
  const body = errorBody(new ApiError(Number(status.slice(0, 3)), message));
  socket.end(
    `HTTP/1.1 ${status}\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\n` +
      `connection: close\r\n\r\n${body}`,
  );
}
