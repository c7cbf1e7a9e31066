import { randomBytes } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { DualPathError, isDualPathError } from '../errors/index.js';
import { errorFields, traceIdOf } from '../log/index.js';
import { ApiError, apiOf, type Api } from '../openai/index.js';
import { policyEntries } from '../route-eval/index.js';
import { adminServer } from './admin.js';
import { checkContent, deadlineOf, modelIn, pathOf, refuseClient } from './checks.js';
import { Crowd } from './crowd.js';
import { Fleet } from './fleet.js';
import { Flight, type FlightDesk } from './flight.js';
import { requestHeaders, requestIdOf } from './headers.js';
import { ProxyMetrics } from './metrics.js';
import { defaultOptions, type ProxyOptions } from './options.js';
import { ParsePool } from './parse-pool.js';
import { Passage } from './passage.js';
import { Peers } from './peers.js';
import { Preparer, type Prepared } from './prepare.js';
import { BodyMemory, checkLength, readBody } from './read-body.js';
import { RetryBudget } from './retry-budget.js';
import { ResponsePlaces } from './sticky.js';
import { sendError } from './send-error.js';
import { tenantOf } from './tenants.js';

/** How often deadlines are looked at, in ms. */
const tickMs = 100;

/** The router as an HTTP/1.1 proxy in front of OpenAI-compatible servers. */
export class Proxy {
  readonly options: ProxyOptions;
  readonly metrics = new ProxyMetrics();
  readonly fleet: Fleet;
  readonly #server: Server;
  readonly #admin: Server | null;
  readonly #peers: Peers;
  readonly #preparer: Preparer;
  readonly #pool: ParsePool | null;
  readonly #memory: BodyMemory;
  readonly #flights = new Crowd<Flight>();
  readonly #desk: FlightDesk;
  readonly #places: ResponsePlaces;
  #timer: NodeJS.Timeout | undefined;
  #closing = false;

  /** @throws INVALID_ARGUMENT for impossible options */
  constructor(options: Partial<ProxyOptions> = {}, note: (message: string) => void = () => undefined) {
    this.options = { ...defaultOptions, ...options };
    checkOptions(this.options);
    const { limits, times } = this.options;
    this.fleet = new Fleet(this.options, this.metrics, note);
    this.#preparer = new Preparer(this.options);
    const { blockTokens, bytesPerToken, secret, volatileLines } = this.options;
    const prepare = { blockTokens, bytesPerToken, secret, volatileLines };
    this.#pool = limits.workers > 0 ? new ParsePool(prepare, limits.workers) : null;
    this.#memory = new BodyMemory(limits.bufferedBytes);
    this.#places = new ResponsePlaces(limits.responses);
    this.#desk = this.#newDesk();
    this.#server = createServer(
      {
        maxHeaderSize: limits.headerBytes,
        insecureHTTPParser: false,
        requireHostHeader: true,
        headersTimeout: times.headersMs,
        requestTimeout: times.requestMs,
        keepAliveTimeout: times.keepAliveMs,
        connectionsCheckingInterval: 1000,
        noDelay: true,
      },
      (request, response) => this.#handle(request, response),
    );
    this.#server.maxConnections = limits.connections;
    this.#server.on('checkContinue', (request: IncomingMessage, response: ServerResponse) =>
      this.#handle(request, response, true),
    );
    this.#server.on('clientError', refuseClient);
    const { adminToken, adminPort } = this.options;
    const name = randomBytes(8).toString('hex');
    this.#peers = new Peers(this.fleet.routing, this.options.peers, adminToken, name);
    this.#admin =
      adminPort === null
        ? null
        : adminServer({ fleet: this.fleet, metrics: this.metrics, peers: this.#peers, token: adminToken });
    this.#addGauges();
  }

  /** Ports as they are bound, also where 0 was asked for. */
  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get adminPort(): number | null {
    return this.#admin === null ? null : (this.#admin.address() as AddressInfo).port;
  }

  get inFlight(): number {
    return this.#flights.size;
  }

  async start(): Promise<void> {
    const { streamIdleMs } = this.options.times;
    await this.fleet.start((target, silentMs) => {
      for (const flight of this.#flights) {
        if (flight.attempt?.target === target) flight.targetHangs(silentMs, streamIdleMs);
      }
    });
    this.#timer = setInterval(() => this.#tick(), tickMs);
    await listen(this.#server, this.options.port, this.options.host);
    if (this.#admin !== null) await listen(this.#admin, this.options.adminPort!, this.options.adminHost);
  }

  /** Takes no more requests, gives those under way `drainMs`, and ends. */
  async close(): Promise<void> {
    if (this.#closing) return;
    this.#closing = true;
    this.#server.close();
    this.#server.closeIdleConnections();
    this.#admin?.close();
    const endMs = performance.now() + this.options.times.drainMs;
    while (this.#flights.size > 0 && performance.now() < endMs)
      await new Promise((done) => setTimeout(done, 20));
    for (const flight of [...this.#flights]) flight.abandon();
    clearInterval(this.#timer);
    this.#peers.close();
    this.#server.closeAllConnections();
    this.#admin?.closeAllConnections();
    await Promise.all([this.fleet.close(), this.#pool?.close()]);
  }

  #handle(request: IncomingMessage, response: ServerResponse, expects = false): void {
    this.#serve(request, response, expects).catch((error: unknown) => {
      const fault = asApiError(error);
      this.metrics.refused.inc({ status: String(fault.status) });
      this.#refused(request, fault, error);
      sendError(response, fault);
    });
  }

  #refused(request: IncomingMessage, { status, message }: ApiError, error: unknown): void {
    const { log } = this.options;
    if (log === null) return;
    const fields = { request_id: requestIdOf(request), path: request.url?.split('?', 1)[0], status };
    if (status === 500) log.error({ ...fields, ...errorFields(error) }, 'the router has failed');
    else log.warn({ ...fields, reason: message }, 'request refused');
  }

  async #serve(request: IncomingMessage, response: ServerResponse, expects: boolean): Promise<void> {
    const path = pathOf(request);
    const tenant = tenantOf(request.headers, this.options.tenants);
    checkLength(request, this.options.limits.bodyBytes);
    if (expects) response.writeContinue();
    const api = request.method === 'POST' ? apiOf(path) : undefined;
    if (api !== undefined) await this.#model(api, tenant, request, response);
    else if (path === '/health') this.#health(response);
    else if (path === '/v1/models' && request.method === 'GET') this.#models(response);
    else await this.#pass(path, tenant, request, response);
  }

  async #model(api: Api, tenant: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const arrivedMs = performance.now();
    checkContent(request);
    const { limits, times } = this.options;
    if (this.#closing) throw new ApiError(503, 'the router is shutting down', { code: 'closing' });
    const deadlineMs = arrivedMs + deadlineOf(request, times.deadlineMs);
    const read = await readBody(request, limits.bodyBytes, this.#memory);
    if (read === null) return;
    const bytes = read.length; // of a body that a worker has, Node says 0
    if (response.destroyed) {
      this.#memory.release(bytes);
      return;
    }
    response.once('close', () => this.#memory.release(bytes));
    const isLarge = this.#pool !== null && bytes >= limits.workerBytes;
    const prepared: Prepared & { body?: Buffer } = isLarge
      ? await this.#pool.prepare(api, read, tenant)
      : this.#preparer.prepare(api, read, tenant);
    if (response.destroyed) return;
    const group = this.fleet.routing.groupOf(prepared.prompt.model);
    this.#checkRoom(group.router);
    this.fleet.weigh(prepared.keyed.promptTokens);
    const requestId = requestIdOf(request);
    const flight = new Flight(
      this.#desk,
      {
        api,
        path: request.url!,
        requestId,
        traceId: traceIdOf(request.headers['traceparent']),
        headers: requestHeaders(request.rawHeaders, requestId),
        body: prepared.body ?? read,
        prompt: prepared.prompt,
        keyed: prepared.keyed,
        tenant,
        group,
        deadlineMs,
      },
      response,
    );
    // After the flight's own listener, which ends it.
    response.once('close', () => this.#memory.large.give(flight.plan.body.buffer));
    flight.ticket = this.#flights.add(flight);
    try {
      flight.start();
    } catch (error) {
      flight.over = true;
      this.#flights.remove(flight.ticket);
      throw error;
    }
  }

  /** @throws ApiError 429 at saturation, with the time after which the least loaded replica should have room */
  #checkRoom({ cluster, requests }: ReturnType<Fleet['routing']['groupOf']>['router']): void {
    const { limits } = this.options;
    let waiting = 0;
    let leastS = Infinity;
    for (const instance of cluster.routable) {
      waiting += instance.waiting.size;
      if (waiting >= limits.waitingRequests) leastS = Math.min(leastS, cluster.queueS(instance));
    }
    if (waiting < limits.waitingRequests && this.#flights.size < limits.requests) return;
    const retryS = Number.isFinite(leastS) ? Math.max(1, Math.ceil(leastS)) : 1;
    throw new ApiError(429, `${waiting} of ${requests} requests wait already: come back in ${retryS} s`, {
      code: 'saturated',
      headers: { 'retry-after': String(retryS) },
    });
  }

  async #pass(
    path: string,
    tenant: string,
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<void> {
    if (!path.startsWith('/v1/')) throw new ApiError(404, `there is no ${path}: this router serves /v1/...`);
    let body: Buffer | null = null;
    let model: string | null = null;
    const isJson = /^application\/json\b/i.test(request.headers['content-type'] ?? '');
    if (!this.fleet.isUniform && request.method === 'POST' && isJson) {
      const { limits } = this.options;
      body = await readBody(request, limits.bodyBytes, this.#memory);
      if (body === null) return;
      const { length } = body;
      response.once('close', () => this.#memory.release(length));
      model = modelIn(body);
    }
    const responseId = /^\/v1\/responses\/([^/]+)/.exec(path)?.[1];
    const place = responseId === undefined ? undefined : this.#places.find(tenant, responseId);
    const sticky = place === undefined ? undefined : this.fleet.routing.targets.get(place);
    const target = sticky ?? this.fleet.leastBusy(model);
    if (target === undefined) {
      throw new ApiError(503, 'there is no replica to serve this', { headers: { 'retry-after': '1' } });
    }
    const passage = new Passage(
      {
        bodyBytesMax: this.options.limits.bodyBytes,
        left: (_passage, outcome) => this.metrics.passed.inc({ outcome }),
        failed: (failed, isDown) => {
          if (isDown) this.fleet.eject(failed, 'down');
          else if (failed.failed()) this.fleet.eject(failed, 'failing');
        },
      },
      request,
      response,
    );
    passage.start(target, body);
  }

  #health(response: ServerResponse): void {
    const { groups } = this.fleet.routing;
    const isUp = [...groups.values()].some(({ router }) => router.cluster.routable.length > 0);
    sendJson(response, isUp ? 200 : 503, { status: isUp ? 'ok' : 'no replica', replicas: this.fleet.size });
  }

  #models(response: ServerResponse): void {
    const data = [...this.fleet.routing.groups.keys()].map((id) => ({
      id,
      object: 'model',
      created: 0,
      owned_by: 'dualpath',
    }));
    sendJson(response, 200, { object: 'list', data });
  }

  #tick(): void {
    const nowMs = performance.now();
    const { streamIdleMs, clientStallMs } = this.options.times;
    for (const flight of this.#flights) flight.tick(nowMs, streamIdleMs, clientStallMs);
  }

  #newDesk(): FlightDesk {
    return {
      routing: this.fleet.routing,
      budget: new RetryBudget(),
      places: this.#places,
      metrics: this.metrics,
      prefillSPerToken: this.options.prefillSPerToken,
      log: this.options.log,
      eject: (target, reason) => this.fleet.eject(target, reason),
      landed: (flight) => void this.#flights.remove(flight.ticket),
    };
  }

  #addGauges(): void {
    const { metrics } = this;
    metrics.gauge('in_flight', 'Requests that have not ended', [], (set) => set(this.#flights.size));
    metrics.gauge('body_bytes', 'Bodies in memory', [], (set) => set(this.#memory.bytes));
    metrics.gauge('target_in_flight', 'Requests at a replica', ['target'], (set) => {
      for (const [target, { attempts }] of this.fleet.routing.targets) set({ target }, attempts.size);
    });
    metrics.gauge('target_up', '1: takes requests', ['target'], (set) => {
      for (const [target, { isEjected }] of this.fleet.routing.targets) set({ target }, isEjected ? 0 : 1);
    });
    metrics.gauge('target_pending_tokens', 'Uncached tokens not computed yet', ['target'], (set) => {
      for (const [name, target] of this.fleet.routing.targets) {
        set({ target: name }, this.fleet.routing.pendingTokens(target));
      }
    });
  }
}

function checkOptions({ policy, adminPort, adminHost, adminToken }: ProxyOptions): void {
  if (!policyEntries.some(({ name }) => name === policy)) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `there is no policy ${policy}: give one of ${policyEntries.map(({ name }) => name).join(', ')}`,
      { policy },
    );
  }
  if (adminPort !== null && adminToken === null && !/^(127\.|::1$|localhost$)/.test(adminHost)) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `the admin API on ${adminHost} can be reached by others: give it a token, or bind it to 127.0.0.1`,
      { admin_host: adminHost },
    );
  }
}

function asApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  if (isDualPathError(error, 'CAPACITY_EXHAUSTED')) {
    return new ApiError(429, error.message, { code: 'saturated', headers: { 'retry-after': '1' } });
  }
  return new ApiError(500, 'the router has failed: please report this', { code: 'internal' });
}

function sendJson(response: ServerResponse, status: number, value: object): void {
  const body = JSON.stringify(value);
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
  });
  response.end(body);
}

function listen(server: Server, port: number, host: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) =>
      reject(
        new DualPathError('INVALID_ARGUMENT', `cannot listen on ${host}:${port}: ${error.message}`, {
          host,
          port,
        }),
      ),
    );
    server.listen(port, host, () => resolve());
  });
}
