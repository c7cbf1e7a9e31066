import type { ServerResponse } from 'node:http';
import { errorBody, type ApiError } from '../openai/index.js';
import { requestIdOf } from './headers.js';

/** A client that still sends is listened to for so long, or its answer would be lost with the connection. */
const lingerMs = 1000;

/** Sends an error where nothing has been sent yet; else the end of the connection is all that can say it. */
export function sendError(response: ServerResponse, error: ApiError): void {
  if (response.headersSent || response.destroyed) {
    response.destroy();
    return;
  }
  const { req: request } = response;
  const isWhole = request.complete;
  const body = errorBody(error);
  response.writeHead(error.status, {
    'content-type': 'application/json',
    'x-request-id': requestIdOf(request),
    'content-length': Buffer.byteLength(body),
    // What is left of a body that nobody reads must not be taken for the next request.
    ...(isWhole ? {} : { connection: 'close' }),
    ...error.options.headers,
  });
  if (isWhole) {
    response.end(body);
    return;
  }
  response.write(body);
  const timer = setTimeout(() => response.end(), lingerMs);
  request.once('close', () => clearTimeout(timer));
  request.once('end', () => response.end());
  request.resume();
}
