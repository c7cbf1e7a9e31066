import { timingSafeEqual } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { z } from 'zod';
import { isDualPathError } from '../errors/index.js';
import { ApiError, parseBody } from '../openai/index.js';
import type { Fleet } from './fleet.js';
import { sendError } from './send-error.js';
import type { ProxyMetrics } from './metrics.js';
import { peerMessage, type Peers } from './peers.js';
import { BodyMemory, readBody } from './read-body.js';
import { replicaOf, replicaSchema } from './replicas-file.js';

const bodyBytesMax = 4 * 1024 * 1024;

export interface AdminOptions {
  readonly fleet: Fleet;
  readonly metrics: ProxyMetrics;
  readonly peers: Peers;
  readonly token: string | null;
}

/**
 * GET /metrics, /replicas; POST /replicas (a replica), /replicas/NAME/drain, /peers; DELETE /replicas/NAME. On a port of
 * its own, so that no client of the models can reach it.
 */
export function adminServer(options: AdminOptions): Server {
  const memory = new BodyMemory(16 * bodyBytesMax);
  return createServer({ requestTimeout: 10_000, headersTimeout: 5000 }, (request, response) => {
    handle(options, memory, request, response).catch((error: unknown) =>
      sendError(response, asApiError(error)),
    );
  });
}

async function handle(
  options: AdminOptions,
  memory: BodyMemory,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const { fleet, metrics, peers, token } = options;
  if (token !== null && !isToken(request.headers.authorization, token)) {
    throw new ApiError(401, 'send the admin token as a bearer token');
  }
  const { method = '', url = '' } = request;
  const [, collection, encoded, action] = url.split('?')[0]!.split('/');
  const name = decodeURIComponent(encoded ?? '');
  const route = `${method} /${collection ?? ''}${encoded === undefined ? '' : '/NAME'}${action === undefined ? '' : `/${action}`}`;
  switch (route) {
    case 'GET /metrics':
      response.setHeader('content-type', metrics.registry.contentType);
      response.end(await metrics.registry.metrics());
      return;
    case 'GET /replicas':
      sendJson(response, 200, { replicas: fleet.status().map(snakeStatus), peers: peers.heard });
      return;
    case 'POST /replicas': {
      const replica = fleet.add(replicaOf(parse(replicaSchema, await bodyOf(request, memory))));
      sendJson(response, 201, { name: replica.name });
      return;
    }
    case 'POST /replicas/NAME/drain':
      fleet.drain(name);
      sendJson(response, 200, { name, draining: true });
      return;
    case 'DELETE /replicas/NAME':
      await fleet.remove(name);
      sendJson(response, 200, { name, removed: true });
      return;
    case 'POST /peers':
      peers.take(parse(peerMessage, await bodyOf(request, memory)));
      sendJson(response, 200, {});
      return;
    default:
      throw new ApiError(404, `there is no ${method} ${url}: see docs/routing.md for the admin API`);
  }
}

async function bodyOf(request: IncomingMessage, memory: BodyMemory): Promise<unknown> {
  const body = await readBody(request, bodyBytesMax, memory);
  if (body === null) throw new ApiError(400, 'the client left');
  memory.release(body.length);
  return parseBody(body);
}

function parse<T>(schema: z.ZodType<T>, value: unknown): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new ApiError(400, z.prettifyError(parsed.error));
}

function isToken(header: string | undefined, token: string): boolean {
  const given = Buffer.from(header ?? '');
  const wanted = Buffer.from(`Bearer ${token}`);
  return given.length === wanted.length && timingSafeEqual(given, wanted);
}

function snakeStatus({ targets, ...rest }: ReturnType<Fleet['status']>[number]): object {
  return {
    ...rest,
    targets: targets.map(({ inFlight, pendingTokens, ...target }) => ({
      ...target,
      in_flight: inFlight,
      pending_tokens: pendingTokens,
    })),
  };
}

function sendJson(response: ServerResponse, status: number, value: object): void {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(value));
}

function asApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  if (isDualPathError(error, 'INVALID_ARGUMENT')) {
    return new ApiError(error.message.startsWith('there is no replica') ? 404 : 409, error.message);
  }
  return new ApiError(500, error instanceof Error ? error.message : String(error));
}
